"""The agent's side of the wire: one JSON object per line each way, on a socket only the host's side can reach.

A connection from any other address than the gateway's is closed unread: the app shares the machine with the agent. A
request is answered before the next one of the same connection is read.
"""

from __future__ import annotations

import json
import socket

from hosts.guest.agent.loop import READ, WRITE, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Prepared once: `json.loads` and `json.dumps` go through regular expressions and a new encoder at each call, and under
# TCG a guest has to have that code translated first.
_scan: Callable[[str, int], tuple[object, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_encode = json.JSONEncoder(separators=(",", ":")).encode

MAX_REQUEST_BYTES = 4 * 1024 * 1024  # a start may carry every variable of an app, a build the operator's CA bundle
BACKLOG = 64  # connections the guest's kernel holds for its agent
READ_BYTES = 64 * 1024
# Wake the agent when the request is there, not when the connection is: one turn of the loop less.
DEFER_ACCEPT_S = 5  # a connection to it without a byte


class Connection:
    """One host connection: reads lines, writes answers."""

    __slots__ = ("_busy", "_handle", "_incoming", "_loop", "_outgoing", "_socket", "_watched", "on_close", "on_drained")

    def __init__(
        self, loop: Loop, sock: socket.socket, handle: Callable[[Connection, dict[str, object]], None]
    ) -> None:
        self._loop = loop
        self._socket: socket.socket | None = sock
        self._handle = handle
        self._incoming = b""
        self._outgoing = b""
        self._busy = False
        self.on_close: Callable[[], None] | None = None  # whoever works for this connection and must stop
        self.on_drained: Callable[[], None] | None = None  # whoever waits for room to write
        self._watched = 0
        self._ready(READ)  # the request is there already
        self._watch(READ)

    @property
    def waiting_bytes(self) -> int:
        return len(self._outgoing)

    def answer(self, message: dict[str, object]) -> None:
        """The answer to the present request; the next may then be read."""
        self._busy = False
        self.write(_encode(message).encode() + b"\n")
        self._next()

    def write(self, data: bytes) -> None:
        """Raw bytes of an answer that comes in pieces."""
        if self._socket is None:
            return
        self._outgoing += data
        self._flush()

    def close(self) -> None:
        sock, self._socket = self._socket, None
        if sock is None:
            return
        self._loop.forget(sock.fileno())
        sock.close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()

    def _ready(self, events: int) -> None:
        if self._socket is None:
            return
        if events & WRITE:
            self._flush()
        if self._socket is None or not events & ~WRITE:
            return
        try:
            data = self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not data or len(self._incoming) + len(data) > MAX_REQUEST_BYTES:
            self.close()
            return
        self._incoming += data
        if not self._busy:
            self._next()

    def _next(self) -> None:
        line, end, rest = self._incoming.partition(b"\n")
        if not end or self._busy or self._socket is None:
            return
        self._incoming = rest
        self._busy = True
        try:
            request, _ = _scan(line.decode(), 0)
        except (ValueError, StopIteration, RecursionError):
            request = None
        if not isinstance(request, dict):
            self.answer({"ok": False, "code": "guest:bad_request", "message": "not a JSON object"})
            return
        self._handle(self, request)

    def _watch(self, events: int) -> None:
        if self._outgoing:
            events |= WRITE
        if self._socket is not None and events != self._watched:
            self._watched = events
            self._loop.watch(self._socket.fileno(), events, self._ready)

    def _flush(self) -> None:
        if self._socket is None:
            return
        try:
            sent = self._socket.send(self._outgoing, socket.MSG_DONTWAIT) if self._outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self._outgoing = self._outgoing[sent:]
        if self._watched:  # else this is the first answer, and the constructor watches next
            self._watch(READ | WRITE if self._outgoing else READ)
        if not self._outgoing and self.on_drained is not None:
            self.on_drained()


class Server:
    """Accepts the host's connections."""

    __slots__ = ("_allowed_peer", "_handle", "_listener", "_loop")

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        allowed_peer: str,
        handle: Callable[[Connection, dict[str, object]], None],
    ) -> None:
        self._loop = loop
        self._allowed_peer = allowed_peer
        self._handle = handle
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT_S)
        self._listener.bind(address)
        self._listener.listen(BACKLOG)
        loop.watch(self._listener.fileno(), READ, self._accept)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        self._loop.forget(self._listener.fileno())
        self._listener.close()

    def _accept(self, _events: int) -> None:
        try:
            sock, peer = self._listener.accept()
        except OSError:  # gone again before we came to it
            return
        if peer[0] != self._allowed_peer:
            sock.close()
            return
        Connection(self._loop, sock, self._handle)
