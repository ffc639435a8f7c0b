"""Who waits for a machine, and what is held of their requests meanwhile: bounded per machine and over all.

One app that is full is refused by itself, well before the edge is: its share of either bound is a fraction of all. What
is held is the part of a body that had been read when there was no pipe yet, one read a request; the rest of an upload
stays with its sender.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from tunnel.edge.limits import MIB, Limits
from tunnel.wire import Code, Refused


class WaitingRoom:
    """Counts waiters and the bytes held for them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiters: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self.waiters = self.held_bytes = 0  # over all machines

    @contextlib.contextmanager
    def place(self, machine: str) -> Iterator[None]:
        """A place for one request, or Refused."""
        limits = self._limits
        if self._waiters[machine] >= limits.max_waiters:
            raise _full(f"{limits.max_waiters} requests are waiting for this app already.")
        if self.waiters >= limits.max_waiters_in_all:
            raise _full(f"{limits.max_waiters_in_all} requests are waiting at this edge already.")
        self._waiters[machine] += 1
        self.waiters += 1
        try:
            yield
        finally:
            self.waiters -= 1
            _less(self._waiters, machine, 1)

    def hold(self, machine: str, size: int) -> None:
        """Room for so many bytes more, or Refused."""
        limits = self._limits
        if self._held[machine] + size > limits.waiting_mib * MIB:
            raise _full(f"{limits.waiting_mib} MiB of requests are waiting for this app already.")
        if self.held_bytes + size > limits.waiting_mib_in_all * MIB:
            raise _full(f"{limits.waiting_mib_in_all} MiB of requests are waiting at this edge already.")
        self._held[machine] += size
        self.held_bytes += size

    def let_go(self, machine: str, size: int) -> None:
        """So many bytes are held no longer."""
        self.held_bytes -= size
        _less(self._held, machine, size)


class Held:
    """What was read of one request's body before it had a pipe."""

    __slots__ = ("_chunks", "_machine", "_room", "_size")

    def __init__(self, room: WaitingRoom, machine: str) -> None:
        self._room = room
        self._machine = machine
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunks: list[bytes]) -> None:
        """Keep these too; Refused if there is no room."""
        size = sum(map(len, chunks))
        self._room.hold(self._machine, size)
        self._chunks += chunks
        self._size += size

    def take(self) -> list[bytes]:
        """All of it, in order; nothing is held from here on."""
        chunks, self._chunks = self._chunks, []
        if self._size:
            self._room.let_go(self._machine, self._size)
            self._size = 0
        return chunks


def keep(held: Held | None, chunks: list[bytes], room: WaitingRoom, machine: str) -> Held:
    """Keep these after what is held already, if anything is; Refused if there is no room."""
    held = held or Held(room, machine)
    held.add(chunks)
    return held


def _full(message: str) -> Refused:
    return Refused(Code.WAKE_QUEUE_FULL, "queue", message)


def _less(counts: Counter[str], machine: str, amount: int) -> None:
    counts[machine] -= amount
    if not counts[machine]:
        del counts[machine]
