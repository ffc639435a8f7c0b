"""Which addresses a machine's allowed names have led to, and until when: what the set in its namespace is filled from.

Pure: time goes in, text for nft comes out. A lease is of one address and port to one name, so a name that leaves the
list takes only its own along where two share an address.
"""

from __future__ import annotations

from hosts.net.firewall import ALLOWED_MAX, ALLOWED_SET, INSIDE_TABLE
from hosts.wire.allowlist import AllowedName

GRACE_S = 30.0  # after the answer's own life: a client connects a moment after it looked at the clock
LEASE_MIN_S = 60.0  # an address with a TTL of seconds is still dialled by those who got it

Place = tuple[str, int]


class Leases:
    """The leases of one machine."""

    def __init__(self) -> None:
        self._until: dict[Place, dict[str, float]] = {}

    def grant(self, name: str, ports: tuple[int, ...], addresses: tuple[str, ...], ttl_s: int, *, now: float) -> str:
        """Lease addresses to a name; what nft must be told, or "" if it knows that already. ValueError: no room."""
        self._forget(now)
        until = now + max(ttl_s, LEASE_MIN_S) + GRACE_S
        places = [(address, port) for address in addresses for port in ports]
        if len(self._until.keys() | set(places)) > ALLOWED_MAX:
            raise ValueError(f"more than {ALLOWED_MAX} addresses at a time")
        # Told again only when what it knows would end before this answer does: most answers cost no nft.
        due = [place for place in places if self.until(place) < now + ttl_s + GRACE_S / 2]
        for place in due:
            self._until.setdefault(place, {})[name] = until
        for place in set(places) - set(due):
            self._until[place][name] = self.until(place)
        if not due:
            return ""
        keys = ", ".join(f"{address} . {port}" for address, port in due)
        fresh = ", ".join(f"{address} . {port} timeout {round(until - now)}s" for address, port in due)
        target = f"element inet {INSIDE_TABLE} {ALLOWED_SET}"
        # An element that is there keeps its old end when it is added, so it goes and comes back in one transaction.
        return f"add {target} {{ {keys} }}\ndelete {target} {{ {keys} }}\nadd {target} {{ {fresh} }}\n"

    def keep(self, allow: tuple[AllowedName, ...], *, now: float) -> str:
        """Drop what a new list no longer allows; the set's elements under it."""
        self._forget(now)
        for place, names in self._until.items():
            self._until[place] = {
                name: until
                for name, until in names.items()
                if any(allowed.covers(name) and place[1] in allowed.ports for allowed in allow)
            }
        self._until = {place: names for place, names in self._until.items() if names}
        if not self._until:
            return ""
        rest = (f"{a} . {p} timeout {max(1, round(self.until((a, p)) - now))}s" for a, p in self._until)
        return f"elements = {{ {', '.join(rest)} }}"

    def revoke(self, name: str) -> None:
        """Count nothing as leased to this name: nft could not be told."""
        for names in self._until.values():
            names.pop(name, None)
        self._until = {place: names for place, names in self._until.items() if names}

    def until(self, place: Place) -> float:
        """The end of the longest lease of an address and port."""
        return max(self._until.get(place, {}).values(), default=0.0)

    def _forget(self, now: float) -> None:
        self._until = {place: names for place, names in self._until.items() if max(names.values()) > now}
