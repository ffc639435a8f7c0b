"""Slow down whoever guesses passwords.

A bounded record of recent failures per key, kept in this worker's memory: with N web workers a guesser gets at most N
times the limit, and no page needs Redis to let a person in. When the record is full the oldest key is forgotten first.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from math import ceil

MAX_KEYS = 10_000


class Throttle:
    """At most `limit` counted events per key within `window_s`; reads and writes are safe between threads."""

    def __init__(
        self,
        *,
        limit: int,
        window_s: float,
        clock: Callable[[], float] = time.monotonic,
        max_keys: int = MAX_KEYS,
    ) -> None:
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._max_keys = max_keys
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, key: str) -> int:
        """Whole seconds until `key` may try again; 0 = now."""
        with self._lock:
            times = self._fresh(key)
            if times is None or len(times) < self._limit:
                return 0
            return max(1, ceil(times[0] + self._window_s - self._clock()))

    def count(self, key: str) -> None:
        """Note one event (a wrong password) for `key`."""
        with self._lock:
            times = self._fresh(key)
            if times is None:
                times = deque(maxlen=self._limit)
                self._seen[key] = times
            times.append(self._clock())
            self._seen.move_to_end(key)
            while len(self._seen) > self._max_keys:
                self._seen.popitem(last=False)

    def forget(self, key: str) -> None:
        """The right password came: start over."""
        with self._lock:
            self._seen.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._seen.clear()

    def _fresh(self, key: str) -> deque[float] | None:
        times = self._seen.get(key)
        if times is None:
            return None
        horizon = self._clock() - self._window_s
        while times and times[0] <= horizon:
            times.popleft()
        if not times:
            del self._seen[key]
            return None
        return times
