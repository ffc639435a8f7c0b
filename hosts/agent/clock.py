"""Time and chance, passed in: the agent reads no clock by itself, so that tests can hold time in their hand."""

from __future__ import annotations

import asyncio
import random
import secrets
import time


class Clock:
    """The real ones; `tests.fakes.clock` has one that moves when told."""

    def wall_ms(self) -> int:
        """Unix time in milliseconds; may jump."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def jitter(self, seconds: float) -> float:
        """Somewhere between half of `seconds` and all of it."""
        spread: float = 0.5 + random.random() / 2  # noqa: S311 - spreads retries, guards nothing
        return seconds * spread

    def new_id(self) -> str:
        """32 lower-case hex digits nobody can guess."""
        return secrets.token_hex(16)

    def entropy(self, size: int) -> bytes:
        """Random bytes for a guest's kernel."""
        return secrets.token_bytes(size)


def backoff_s(failures: int, *, first_s: float, cap_s: float) -> float:
    """How long to wait after the n-th failure in a row (n >= 1), before jitter."""
    return min(cap_s, first_s * 2.0 ** min(failures - 1, 30))
