"""Carries connections from the machine's outside address to an app that listens on loopback only.

Plain byte pipes with a bounded buffer each way and half-close kept. A forward holds its port at the outside address
only, so it must go as soon as the app stops listening: the app's next bind to 0.0.0.0 would fail otherwise.
"""

from __future__ import annotations

import socket

from hosts.guest.agent.loop import READ, WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER_BYTES = 64 * 1024  # held for one connection to an app that listens on 127.0.0.1 only
BACKLOG = 128  # connections the guest's kernel holds for such an app
MAX_PIPES = 1000  # connections to such an app


class Forward:
    """One outside port carried to one inside address."""

    __slots__ = ("_listener", "_loop", "_on_refused", "_pipes", "inside", "port")

    def __init__(self, loop: Loop, outside: str, port: int, inside: str, on_refused: Callable[[], None]) -> None:
        self._loop = loop
        self._on_refused = on_refused
        self._pipes: set[Pipe] = set()
        self.port = port
        self.inside = inside
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((outside, port))
            self._listener.listen(BACKLOG)
        except OSError:
            self._listener.close()
            raise
        loop.watch(self._listener.fileno(), READ, self._accept)

    def close(self) -> None:
        """Give the port back; pipes under way go on until their ends close."""
        self._loop.forget(self._listener.fileno())
        self._listener.close()

    def _accept(self, _events: int) -> None:
        try:
            outer, _ = self._listener.accept()
        except OSError:  # gone again before we came to it
            return
        if len(self._pipes) >= MAX_PIPES:
            outer.close()
            return
        family = socket.AF_INET6 if ":" in self.inside else socket.AF_INET
        inner = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Loopback answers at once, yes or no: nothing to wait for.
            inner.connect((self.inside, self.port))
        except OSError:
            inner.close()
            outer.close()
            self._on_refused()
            return
        for end in (outer, inner):
            end.setblocking(False)  # noqa: FBT003 - its signature
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pipes.add(Pipe(self._loop, outer, inner, self._pipes.discard))


class Pipe:
    """Two sockets joined."""

    __slots__ = ("_done", "_loop", "_pending", "_read_open", "_sockets", "_write_open")

    def __init__(self, loop: Loop, one: socket.socket, other: socket.socket, done: Callable[[Pipe], None]) -> None:
        self._loop = loop
        self._sockets = (one, other)
        self._pending = [b"", b""]  # what waits to be written to each
        self._read_open = [True, True]
        self._write_open = [True, True]
        self._done = done
        self._watch()

    def _watch(self) -> None:
        for side in (0, 1):
            events = 0
            if self._read_open[side] and not self._pending[1 - side]:
                events |= READ
            if self._pending[side]:
                events |= WRITE
            self._loop.watch(self._sockets[side].fileno(), events, self._ready_0 if side == 0 else self._ready_1)

    def _ready_0(self, events: int) -> None:
        self._ready(0, events)

    def _ready_1(self, events: int) -> None:
        self._ready(1, events)

    def _ready(self, side: int, events: int) -> None:
        try:
            if self._pending[side]:
                self._write(side)
            # Error and hang-up come without being asked for; reading tells which.
            if events & ~WRITE and self._read_open[side] and not self._pending[1 - side]:
                self._read(side)
            elif events & ~(READ | WRITE) and not self._read_open[side]:
                self._close()
                return
        except BlockingIOError:
            pass
        except OSError:
            self._close()
            return
        if not any(self._read_open) and not any(self._pending):
            self._close()
            return
        self._watch()

    def _read(self, side: int) -> None:
        data = self._sockets[side].recv(BUFFER_BYTES)
        if data:
            self._pending[1 - side] = data
            self._write(1 - side)
            return
        self._read_open[side] = False
        self._half_close(1 - side)

    def _write(self, side: int) -> None:
        try:
            sent = self._sockets[side].send(self._pending[side])
        except BlockingIOError:
            return
        self._pending[side] = self._pending[side][sent:]
        self._half_close(side)

    def _half_close(self, side: int) -> None:
        if not self._read_open[1 - side] and not self._pending[side] and self._write_open[side]:
            self._write_open[side] = False
            self._sockets[side].shutdown(socket.SHUT_WR)

    def _close(self) -> None:
        for end in self._sockets:
            self._loop.forget(end.fileno())
            end.close()
        self._done(self)
