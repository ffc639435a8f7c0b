"""Wakes that no request waits for: those that a waiting page has begun, one a machine.

The stream that woke the machine is kept for the request the page comes back with. Until then the machine counts as in
use, or a short idle period would put it to sleep before the page is back, again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tunnel.edge.activity import Activity
from tunnel.edge.limits import AWAKE_FOR_PAGE_S, MAX_REMEMBERED_WAKES, WAKE_FAILURE_SHOWN_S
from tunnel.edge.pipes import KeptPipes
from tunnel.edge.status import States
from tunnel.edge.streams import Streams
from tunnel.tasks import spawn
from tunnel.wire import Open, Refused, Route, ToMachine


class Wakes:
    """The wakes under way, and what became of the last ones."""

    def __init__(self, streams: Streams, states: States, activity: Activity, kept: KeptPipes) -> None:
        self._streams = streams
        self._states = states
        self._activity = activity
        self._kept = kept
        self._since: dict[str, float] = {}  # machine -> when its wake began
        self._took: dict[str, float] = {}  # machine -> how long its last wake took, the oldest first
        self._failed: dict[str, Refused] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._time: Callable[[], float] = asyncio.get_running_loop().time

    def age(self, machine: str) -> float | None:
        """How long this machine's wake has been under way; None if none is."""
        since = self._since.get(machine)
        return None if since is None else self._time() - since

    def usual(self, machine: str) -> float | None:
        """How long its last wake took, in seconds."""
        return self._took.get(machine)

    def take_failure(self, machine: str) -> Refused | None:
        """Why its last wake failed, told once; None if it did not, or not just now."""
        return self._failed.pop(machine, None)

    def begin(self, route: Route, request: str) -> None:
        """Wake the route's machine, unless that is under way."""
        if route.machine not in self._since:
            self._since[route.machine] = self._time()
            task = spawn(self._wake(route, request), name=f"wake-{route.machine}")
            self._tasks[request] = task
            task.add_done_callback(lambda _: self._tasks.pop(request))

    def close(self) -> None:
        """Wait for none of them any more."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def _wake(self, route: Route, request: str) -> None:
        machine = route.machine
        self._activity.begin(route.host, machine)
        try:
            try:
                pipe, early = await self._streams.open(route.host, Open(ToMachine(machine, may_wake=True), request))
            except Refused as e:
                self._failed[machine] = e
                asyncio.get_running_loop().call_later(WAKE_FAILURE_SHOWN_S, self._failed.pop, machine, None)
                return
            finally:
                began = self._since.pop(machine)
                self._states.forget(machine)
            self._remember(machine, self._time() - began)
            if early:
                pipe.reset()
            else:
                pipe.resume_reading()
                self._kept.keep((route.host, machine, True), pipe, self._time())
            await asyncio.sleep(AWAKE_FOR_PAGE_S)
        finally:
            self._activity.end(machine)

    def _remember(self, machine: str, seconds: float) -> None:
        self._took.pop(machine, None)
        self._took[machine] = seconds
        if len(self._took) > MAX_REMEMBERED_WAKES:
            del self._took[next(iter(self._took))]
