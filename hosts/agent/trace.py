"""Wake traces: which request woke a machine, what it waited for, and when the app's first byte came.

A trace follows the one start that all who ask wait for, and never holds it up: it is put together after the gate is
open, owed to control like any event, and written with whatever is committed next, or by itself a moment later. A
first byte that does not come ends the trace as well: when the stream ends, or after a time. Only a killed agent loses
what it has not written yet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hosts.agent.clock import Clock
from hosts.agent.history import History
from hosts.agent.starts import Gone, StartFailed
from hosts.wire.events import Cause
from hosts.wire.states import MachineState
from hosts.wire.wakes import Step, WakeTrace
from tunnel.tasks import spawn
from tunnel.wire import CAUSED, RAN, WAITED, Opened

if TYPE_CHECKING:
    from hosts.agent.starts import Progress

FIRST_BYTE_WAIT_S = 30.0  # an app that says nothing for so long after it woke has its trace told without
WRITE_AFTER_S = 0.5  # a wake's own bytes go first; whatever is committed meanwhile takes the trace along
MAX_STEPS = 64  # more than any start has; some of them are the guest's word
TRACED = frozenset({Cause.REQUEST, Cause.API})  # other starts are no wakes


class Asked:
    """One request that has reached the host and may have to wait for its machine."""

    __slots__ = ("at_ms", "began", "caused", "kept", "request", "waits_for")

    def __init__(self, clock: Clock, request: str, *, kept: bool = False) -> None:
        self.request = request
        self.kept = kept
        self.began = clock.monotonic()
        self.at_ms = clock.wall_ms()
        self.caused: Wake | None = None  # the wake that would not have been without it
        self.waits_for: Wake | None = None  # the wake it waited for, its own or another's

    def opened(self) -> Opened:
        """What its edge is told."""
        wake = self.waits_for
        if wake is None:
            return RAN
        ms = round(max(wake.ready_at - self.began, 0.0) * 1000, 2)
        return Opened(CAUSED if self.caused is wake else WAITED, ms)


class Wake:
    """One wake under way; as a `tunnel.dial.Watcher` it is told of the app's first byte."""

    def __init__(self, tracer: Tracer, flight: asyncio.Future[None], cause: Cause, asked: Asked) -> None:
        self.flight = flight
        self.cause = cause
        self.asked = asked
        self.waited = 0
        self.first_step_at: float | None = None
        self.ready_at = 0.0
        self.first_byte_at: float | None = None
        self.progress: list[Progress] = []
        self.timer: asyncio.TimerHandle | None = None
        self._tracer = tracer

    def app_spoke(self) -> None:
        """The first byte of the answer."""
        if self.first_byte_at is None:
            self.first_byte_at = self._tracer.clock.monotonic()
        self._tracer.tell(self)

    def stream_ended(self) -> None:
        """There will be none."""
        self._tracer.tell(self)

    def trace(self) -> WakeTrace:
        """What there is to tell."""
        error = self.flight.exception()
        failure = error.failure if isinstance(error, StartFailed) else None
        reports = [progress.report() for progress in self.progress]
        steps: tuple[Step, ...] = ()
        for report in reports:  # a resume that was given up comes before the cold boot it led to
            steps += report.steps
        last = reports[-1] if reports else None
        return WakeTrace(
            at_ms=self.asked.at_ms,
            request=self.asked.request,
            kept=self.asked.kept,
            waited=self.waited,
            start=last.start if last is not None else None,
            reason=last.reason if last is not None else "",
            queue_ms=self._since_asked_ms(self.ready_at if self.first_step_at is None else self.first_step_at),
            ready_ms=self._since_asked_ms(self.ready_at),
            first_byte_ms=None if self.first_byte_at is None else self._since_asked_ms(self.first_byte_at),
            code=failure.code if failure is not None else "",
            phase=failure.phase if failure is not None else "",
            steps=steps[:MAX_STEPS],
        )

    def _since_asked_ms(self, at: float) -> float:
        return round((at - self.asked.began) * 1000, 2)


class Tracer:
    """The wakes of one machine."""

    def __init__(self, history: History, clock: Clock) -> None:
        self.clock = clock
        self._history = history
        self._wake: Wake | None = None  # whose start is under way
        self._open: set[Wake] = set()  # started, and the first byte is awaited
        self._write_soon: asyncio.TimerHandle | None = None

    def join(self, flight: asyncio.Future[None], cause: Cause, asked: Asked | None) -> None:
        """One more waits for this start; the first of them caused it."""
        wake = self._wake
        if wake is None or wake.flight is not flight:
            wake = self._wake = Wake(self, flight, cause, asked or Asked(self.clock, ""))
            wake.asked.caused = wake
            flight.add_done_callback(self._started)
        if asked is not None:
            asked.waits_for = wake
            wake.waited += 1

    def began(self, progress: Progress) -> None:
        """A start of some kind begins its steps."""
        wake = self._wake
        if wake is not None and not wake.flight.done():
            if wake.first_step_at is None:
                wake.first_step_at = self.clock.monotonic()
            wake.progress.append(progress)

    def tell(self, wake: Wake) -> None:
        """The trace is as complete as it will be. Only the first call counts."""
        if wake not in self._open:
            return
        self._open.discard(wake)
        if wake.timer is not None:
            wake.timer.cancel()
        if self._history.state is MachineState.DESTROYED:
            return
        self._history.note_wake(wake.trace(), wake.cause)
        if self._write_soon is None:
            self._write_soon = asyncio.get_running_loop().call_later(WRITE_AFTER_S, self._write)

    async def flush(self) -> None:
        """The agent ends: what is not complete by now is told as it is."""
        for wake in list(self._open):
            self.tell(wake)
        if self._write_soon is not None:
            self._write_soon.cancel()
            self._write_soon = None
            await self._history.commit()

    def _started(self, flight: asyncio.Future[None]) -> None:
        wake, self._wake = self._wake, None
        if wake is None or wake.flight is not flight:
            return
        wake.ready_at = self.clock.monotonic()
        if flight.cancelled() or isinstance(flight.exception(), Gone):
            return
        failed = flight.exception() is not None
        began = wake.progress[-1].report().cause if wake.progress else None
        # A start of another cause that requests waited for is no wake, and neither is a machine found running.
        if (began is None and not failed) or (began is not None and began not in TRACED):
            wake.asked.caused = None
            return
        self._open.add(wake)
        if failed or wake.cause is not Cause.REQUEST:
            self.tell(wake)
        else:
            wake.timer = asyncio.get_running_loop().call_later(FIRST_BYTE_WAIT_S, self.tell, wake)

    def _write(self) -> None:
        self._write_soon = None
        if self._history.state is not MachineState.DESTROYED:
            spawn(self._history.commit(), name="wake-trace")
