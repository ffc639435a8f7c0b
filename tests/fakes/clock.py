"""A clock that moves only when told; who sleeps on it wakes when it has been moved far enough."""

from __future__ import annotations

import asyncio
import itertools

from hosts.agent.clock import Clock

START_MS = 1_700_000_000_000


class FakeClock(Clock):
    """Wall and monotonic time in one hand. Chance is a counter."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._now = 0.0
        self._skew_ms = 0
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self._ids = itertools.count(1)

    def wall_ms(self) -> int:
        return self._start_ms + round(self._now * 1000) + self._skew_ms

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self._now + seconds, woken))
        await woken.wait()

    def jitter(self, seconds: float) -> float:
        return seconds

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def entropy(self, size: int) -> bytes:
        return next(self._ids).to_bytes(size, "big")

    @property
    def sleeping(self) -> int:
        """How many sleep on it."""
        return len(self._sleepers)

    def step_wall(self, ms: int) -> None:
        """The wall clock jumps, as NTP makes it."""
        self._skew_ms += ms

    async def advance(self, seconds: float) -> None:
        """Let time pass and those it wakes run."""
        self._now += seconds
        due = [woken for at, woken in self._sleepers if at <= self._now]
        self._sleepers = [(at, woken) for at, woken in self._sleepers if at > self._now]
        for woken in due:
            woken.set()
        await asyncio.sleep(0)
