"""A single-threaded epoll loop with timers. Everything in the agent happens on it, so nothing needs a lock.

A callback that raises is reported on the console and the loop goes on: the machine is lost to its host if the agent
dies.
"""

from __future__ import annotations

import heapq
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
LONGEST_WAIT_S = 60.0  # of the guest agent's loop for an event


class Timer:
    """A callback to come; `cancel` makes it not come."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Loop:
    """Watches file descriptors and calls back."""

    __slots__ = ("_callbacks", "_poll", "_stopping", "_timers")

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: list[Timer] = []
        self._stopping = False

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call back whenever `fd` is ready for any of `events`; called again, it changes what is watched."""
        if fd in self._callbacks:
            self._poll.modify(fd, events)
        else:
            self._poll.register(fd, events)
        self._callbacks[fd] = callback

    def forget(self, fd: int) -> None:
        """Stop watching; to be called before the descriptor is closed. Idempotent."""
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def after(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call back once, `delay_s` from now."""
        timer = Timer(time.monotonic() + delay_s, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def stop(self) -> None:
        """Leave `run` after the present round (tests)."""
        self._stopping = True

    def close(self) -> None:
        self._poll.close()

    def run(self) -> None:
        """Go round until stopped."""
        while not self._stopping:
            for fd, events in self._poll.poll(self._next_wait()):
                callback = self._callbacks.get(fd)
                if callback is not None:  # else forgotten by a callback of this very round
                    self._guarded(callback, events)
            now = time.monotonic()
            while self._timers and self._timers[0].when <= now:
                due = heapq.heappop(self._timers).callback
                if due is not None:
                    self._guarded(due)

    def _next_wait(self) -> float:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, self._timers[0].when - time.monotonic()))

    def _guarded(self, callback: Callable[..., None], *arguments: int) -> None:
        try:
            callback(*arguments)
        except Exception:  # noqa: BLE001 - this is the loop that must not die
            import traceback  # noqa: PLC0415 - not paid for at start-up

            traceback.print_exc(file=sys.stderr)
