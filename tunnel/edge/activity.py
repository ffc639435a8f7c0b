"""Counts requests in flight per machine, and tells each machine's host.

A host puts a machine to sleep only when nothing is in flight, so a count that rises from zero is sent before the first
byte of the request goes anywhere. A fall to zero is sent a moment late: back-to-back requests then cost no messages at
all. Quiet requests hold off sleep while they last, but do not begin the idle period anew: that is said as long as no
other request has been in flight since the last zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tunnel.edge.limits import ACTIVITY_LINGER_S

Send = Callable[[str, str, int, bool], None]  # host, machine, in_flight, quiet


class Activity:
    """In-flight requests of every machine this edge serves."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._counts: dict[str, int] = {}  # machines with something in flight, or lingering at zero
        self._said: dict[str, int] = {}  # what the host was told last
        self._hosts: dict[str, str] = {}
        self._quiet: set[str] = set()  # those with only quiet requests since their last zero
        self._lingering: dict[str, float] = {}  # machine -> when it fell to zero
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, host: str, machine: str, *, quiet: bool = False) -> None:
        """A request is about to go to the machine."""
        count = self._counts.get(machine, 0)
        self._counts[machine] = count + 1
        if count:
            if not quiet and machine in self._quiet:
                self._quiet.discard(machine)
                self._say(machine, count + 1)
            return
        lingered = self._lingering.pop(machine, None) is not None
        was_quiet = machine in self._quiet
        if quiet and not lingered:
            self._quiet.add(machine)
        elif not quiet:
            self._quiet.discard(machine)
        if not lingered or self._hosts[machine] != host or (was_quiet and not quiet):
            self._hosts[machine] = host
            self._say(machine, 1)

    def end(self, machine: str) -> None:
        """A request is over."""
        count = self._counts[machine] - 1
        self._counts[machine] = count
        if count == 0:
            loop = asyncio.get_running_loop()
            self._lingering[machine] = loop.time()
            if self._timer is None:
                self._timer = loop.call_later(ACTIVITY_LINGER_S, self._settle)

    def in_flight(self, machine: str) -> int:
        """Requests of the machine that are under way."""
        return self._counts.get(machine, 0)

    def total(self) -> int:
        """Requests under way, of all machines."""
        return sum(list(self._counts.values()))

    def update(self) -> None:
        """Tell the hosts of counts that changed without passing zero. Called about once a second."""
        for machine, count in self._counts.items():
            if count and self._said.get(machine) != count:
                self._say(machine, count)

    def repeat(self, host: str) -> None:
        """Tell a host that has just linked again all that is in flight; it forgot with the old link."""
        # It also forgot those that linger: the next request of theirs must be said, not taken for a short pause.
        for machine in [m for m in self._lingering if self._hosts[m] == host]:
            self._forget(machine)
        for machine, count in self._counts.items():
            if count and self._hosts[machine] == host:
                self._say(machine, count)

    def flush(self) -> None:
        """Say every lingering zero now."""
        self._settle(everything=True)

    def _settle(self, *, everything: bool = False) -> None:
        loop = asyncio.get_running_loop()
        limit = loop.time() - ACTIVITY_LINGER_S / 2
        for machine in [m for m, since in self._lingering.items() if everything or since <= limit]:
            self._say(machine, 0)
            self._forget(machine)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lingering:
            self._timer = loop.call_later(ACTIVITY_LINGER_S, self._settle)

    def _forget(self, machine: str) -> None:
        self._quiet.discard(machine)
        del self._lingering[machine], self._counts[machine], self._said[machine], self._hosts[machine]

    def _say(self, machine: str, count: int) -> None:
        self._said[machine] = count
        self._send(self._hosts[machine], machine, count, machine in self._quiet)
