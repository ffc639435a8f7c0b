"""What the edge has done, in plain numbers: counted on the hot path, read by whoever scrapes.

Only the event loop writes; another thread may read, for a copy of a dict of strings is made in one step.
"""

from __future__ import annotations

from bisect import bisect_left

from tunnel.wire import Opened

REQUEST_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAKE_BOUNDS_S = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
MAX_CODES = 64  # a host may name codes of its own; beyond that many they are counted together
OTHER = "other"


class Histogram:
    """How many values fell below each bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets by their bound, the last one "+Inf", and the sum."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), list(self._counts), strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets, self._sum


class Counts:
    """Requests since this edge started."""

    def __init__(self) -> None:
        self.requests: dict[tuple[int, str], int] = {}  # hundreds of the status, kind of pipe
        self.refused: dict[str, int] = {}  # by code
        self.bytes_in = 0
        self.bytes_out = 0
        self.seconds = Histogram(REQUEST_BOUNDS_S)
        self.wakes = {wake: Histogram(WAKE_BOUNDS_S) for wake in ("caused", "waited")}

    def request(
        self, status: int, code: str, pipe: str, bytes_in: int, bytes_out: int, total_s: float, opened: Opened
    ) -> None:
        """One request is over."""
        kind = (status // 100, pipe)
        self.requests[kind] = self.requests.get(kind, 0) + 1
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        if status != 101:  # a tunnel lasts as long as people talk through it
            self.seconds.add(total_s)
        if opened.wake:
            self.wakes[opened.wake].add(opened.wake_ms / 1000)
        if code:
            code = code.partition(" ")[0]  # without what else a broken answer is said to be
            if code not in self.refused and len(self.refused) >= MAX_CODES:
                code = OTHER
            self.refused[code] = self.refused.get(code, 0) + 1
