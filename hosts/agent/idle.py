"""When a machine has had its rest due: what counts as activity, and the pure decision what to do about its absence.

Idle is judged by what comes in through an edge, never by what the machine sends on its own. `next_step` reads no
clock and does no IO; `Idler` is the loop around it. Putting to sleep asks `Activity` again at the last instant, so a
byte that arrives meanwhile wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Protocol

import structlog

from hosts.agent.clock import Clock
from hosts.agent.history import History
from hosts.wire.spec import MachineSpec, Policy
from hosts.wire.states import MachineState
from tunnel.tasks import spawn

log = structlog.get_logger(__name__)

TICK_S = 0.25  # between looks who is idle
RELIEF_TIMEOUT_S = 30.0  # a start that needs memory waits for others to be suspended
MAX_FALLING_ASLEEP = 8  # machines being put to sleep at one time; the others wait for a later tick


class Activity:
    """What is going on with one machine, as far as its edges and its bytes tell."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight: dict[str, int] = {}  # by edge
        self._held = 0
        self.last_at = clock.monotonic()

    @property
    def in_flight(self) -> int:
        """Requests edges have in flight, and streams being opened."""
        return sum(self._in_flight.values()) + self._held

    def touch(self) -> None:
        """A byte came for the machine."""
        self.last_at = self._clock.monotonic()

    def set_in_flight(self, edge: str, count: int, *, quiet: bool = False) -> None:
        """What one edge says it has in flight. The end of a request is activity too: the idle period starts there,
        unless all of it was quiet.
        """
        if not quiet:
            self.touch()
        if count > 0:
            self._in_flight[edge] = count
        else:
            self._in_flight.pop(edge, None)

    def forget(self, edge: str) -> None:
        """A closed link has nothing in flight."""
        if self._in_flight.pop(edge, None) is not None:
            self.touch()

    @contextmanager
    def held(self, *, quiet: bool = False) -> Iterator[None]:
        """Something of our own is going on with the machine, such as a stream being opened."""
        self._held += 1
        if not quiet:
            self.touch()
        try:
            yield
        finally:
            self._held -= 1
            if not quiet:
                self.touch()


class Step(StrEnum):
    """What an idle machine is due."""

    PAUSE = "pause"
    SUSPEND = "suspend"


def next_step(*, state: MachineState, policy: Policy, in_flight: int, quiet_s: float, asleep_s: float) -> Step | None:
    """What is due now: `quiet_s` since the last sign of activity, `asleep_s` since the machine was paused."""
    if in_flight:
        return None
    if state is MachineState.RUNNING and quiet_s >= policy.idle_period_s:
        return Step.PAUSE
    if state is MachineState.PAUSED and asleep_s >= policy.suspend_after_s:
        return Step.SUSPEND
    return None


class Sleeper(Protocol):
    """What the loop needs of a machine."""

    spec: MachineSpec
    history: History
    activity: Activity
    suspend_not_before: float  # monotonic; a suspend that failed is not tried again at once

    async def pause_if_idle(self) -> None: ...
    async def suspend_if_asleep(self) -> None: ...


class Idler:
    """Puts idle machines to sleep. Timers are the records' own times, so a restart re-arms them by itself."""

    def __init__(
        self, machines: Callable[[], Iterable[Sleeper]], clock: Clock, *, pressed: Callable[[], bool] = lambda: False
    ) -> None:
        self._machines = machines
        self._clock = clock
        self._pressed = pressed  # whether memory is short, so that who is paused is to be suspended before its time
        self._busy: set[int] = set()

    @property
    def busy(self) -> int:
        """How many are being put to sleep."""
        return len(self._busy)

    async def run(self) -> None:
        """Look at every machine, for ever."""
        while True:
            self.look()
            await self._clock.sleep(TICK_S)

    def look(self) -> None:
        """Start what is due now, at most MAX_FALLING_ASLEEP at a time."""
        for machine in self._machines():
            if len(self._busy) >= MAX_FALLING_ASLEEP:
                return
            step = self.due(machine)
            if step is not None and id(machine) not in self._busy:
                self._start(machine, step)

        if self._pressed() and not self._busy:
            self._suspend_longest_asleep()

    async def relieve(self) -> bool:
        """Suspend the machine that has been paused longest; False if there is none, or it would not be suspended."""
        found = self._suspend_longest_asleep()
        if found is None:
            return False
        machine, suspending = found
        # Not to be broken off half-way, whoever stops waiting for it.
        await asyncio.wait({suspending}, timeout=RELIEF_TIMEOUT_S)
        return machine.history.state is MachineState.SUSPENDED

    def _suspend_longest_asleep(self) -> tuple[Sleeper, asyncio.Task[None]] | None:
        now = self._clock.monotonic()
        paused = [
            machine
            for machine in self._machines()
            if machine.history.state is MachineState.PAUSED
            and not machine.activity.in_flight
            and now >= machine.suspend_not_before
            and id(machine) not in self._busy
        ]
        if not paused:
            return None
        machine = min(paused, key=lambda one: one.history.record.since_ms)
        return machine, self._start(machine, Step.SUSPEND)

    def _start(self, machine: Sleeper, step: Step) -> asyncio.Task[None]:
        self._busy.add(id(machine))
        return spawn(self._put_to_sleep(machine, step), name=f"sleep-{machine.spec.machine_id}")

    def due(self, machine: Sleeper) -> Step | None:
        """What this machine is due now."""
        now = self._clock.monotonic()
        step = next_step(
            state=machine.history.state,
            policy=machine.spec.policy,
            in_flight=machine.activity.in_flight,
            quiet_s=now - machine.activity.last_at,
            asleep_s=(self._clock.wall_ms() - machine.history.record.since_ms) / 1000,
        )
        if step is Step.SUSPEND and now < machine.suspend_not_before:
            return None
        return step

    async def _put_to_sleep(self, machine: Sleeper, step: Step) -> None:
        try:
            if step is Step.PAUSE:
                await machine.pause_if_idle()
            else:
                await machine.suspend_if_asleep()
        finally:
            self._busy.discard(id(machine))
