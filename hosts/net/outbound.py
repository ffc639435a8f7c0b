"""Which names a machine asked for: a bounded table, for people who make an allow-list from it.

A guest chooses the names, so their number is bounded: the one not asked for longest goes first.
"""

from __future__ import annotations

from hosts.wire.commands import OutboundName

NAMES_MAX = 256  # in an app's egress log


class Outbound:
    """The names of one machine."""

    def __init__(self) -> None:
        self._names: dict[str, OutboundName] = {}  # last asked for last

    def note(self, name: str, *, allowed: bool, now_ms: int) -> None:
        """One question."""
        known = self._names.pop(name, None)
        self._names[name] = OutboundName(name, allowed, (known.count if known else 0) + 1, now_ms)
        if len(self._names) > NAMES_MAX:
            del self._names[next(iter(self._names))]

    def newest_first(self) -> tuple[OutboundName, ...]:
        """All of them."""
        return tuple(reversed(self._names.values()))
