"""One data connection of a host, from the edge's side: idle, then opened, then a pipe with one owner at a time.

Whoever owns a pipe gets its events; a pipe without an owner that says anything is not what it seems and is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Protocol

from tunnel.edge.limits import WRITE_HIGH_BYTES, WRITE_LOW_BYTES
from tunnel.wire import RAN

_RESET = struct.pack("ii", 1, 0)


class PipeOwner(Protocol):
    """What happens on a pipe."""

    def pipe_data(self, data: bytes) -> None: ...

    def pipe_eof(self) -> None: ...

    def pipe_lost(self) -> None: ...

    def pipe_full(self, *, full: bool) -> None: ...


class Pipe(asyncio.Protocol):
    """A data connection."""

    __slots__ = ("_closing", "_writing", "closed", "kept_at", "opened", "owner", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.owner: PipeOwner | None = None
        self.closed = False
        self.kept_at = 0.0
        self.opened = RAN  # what its host said when it opened it
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        owner = self.owner
        if owner is not None:
            owner.pipe_data(data)
        else:
            self.reset()

    def eof_received(self) -> bool:
        owner = self.owner
        if owner is None:
            self.reset()
            return False
        owner.pipe_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.pipe_lost()

    def pause_writing(self) -> None:
        if self.owner is not None:
            self.owner.pipe_full(full=True)

    def resume_writing(self) -> None:
        if self.owner is not None:
            self.owner.pipe_full(full=False)

    def pause_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def write_eof(self) -> None:
        if not self.transport.is_closing():
            self.transport.write_eof()

    def close(self) -> None:
        """Everything was said: flush and close."""
        self.closed = True
        self.owner = None
        self.transport.close()

    def reset(self) -> None:
        """Cut it, so that the other side cannot take the end for a half-close and go on."""
        self.closed = True
        self.owner = None
        reset(self.transport)


def reset(transport: asyncio.Transport) -> None:
    """Close a connection with a RST."""
    if not transport.is_closing():
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


class KeptPipes:
    """Open pipes that have carried a request and may carry another, like any proxy's upstream keep-alive."""

    def __init__(self, *, per_key: int, idle_s: float) -> None:
        self._per_key = per_key
        self._idle_s = idle_s
        self._pipes: dict[tuple[str, str, bool], list[Pipe]] = {}

    def take(self, key: tuple[str, str, bool]) -> Pipe | None:
        """The pipe used last, for it is the least likely to have been given up by the other side."""
        pipes = self._pipes.get(key)
        while pipes:
            pipe = pipes.pop()
            if not pipe.closed:
                return pipe
        return None

    def keep(self, key: tuple[str, str, bool], pipe: Pipe, now: float) -> None:
        """Put a pipe back after a whole exchange."""
        pipe.owner = None
        pipe.kept_at = now
        pipes = self._pipes.get(key)
        if pipes is None:
            pipes = self._pipes[key] = []
        if len(pipes) >= self._per_key:
            pipe.close()
        else:
            pipes.append(pipe)

    def count(self) -> int:
        """How many there are."""
        return sum(len(pipes) for pipes in list(self._pipes.values()))

    def sweep(self, now: float) -> None:
        """Close what has been idle too long."""
        for key, pipes in list(self._pipes.items()):
            fresh = []
            for pipe in pipes:
                if pipe.closed or now - pipe.kept_at > self._idle_s:
                    pipe.close()
                else:
                    fresh.append(pipe)
            if fresh:
                self._pipes[key] = fresh
            else:
                del self._pipes[key]

    def close(self) -> None:
        """Close them all."""
        for pipes in self._pipes.values():
            for pipe in pipes:
                pipe.close()
        self._pipes.clear()
