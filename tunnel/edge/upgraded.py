"""An upgraded connection: after the app's 101, two connections are one plain pipe.

Half-close passes and back-pressure works both ways. It takes the place of its Exchange at the client's connection and
as the owner of the pipe, and tells it when it is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tunnel.edge.core import Core
from tunnel.edge.limits import MAX_TUNNEL_HALF_CLOSED_S
from tunnel.edge.pipes import Pipe

if TYPE_CHECKING:
    from tunnel.edge.listener import ClientConnection

Over = Callable[[int, int, str], None]  # bytes in, bytes out, code


class Upgraded:
    """Two connections joined."""

    wants_data = True

    def __init__(self, core: Core, conn: ClientConnection, pipe: Pipe, over: Over) -> None:
        self._core = core
        self._conn = conn
        self._pipe = pipe
        self._tell_over = over
        self._bytes_in = self._bytes_out = 0
        self._client_ended = self._pipe_ended = False
        self._half_closed_at = 0.0
        pipe.owner = self

    def start(self, from_app: bytes, from_client: bytes) -> None:
        """What either side said together with its head, or before it was asked."""
        if from_app:
            self.pipe_data(from_app)
        if from_client:
            self.client_data(from_client)

    # The client

    def client_data(self, data: bytes) -> None:
        self._bytes_in += len(data)
        self._pipe.transport.write(data)

    def client_eof(self) -> bool:
        self._client_ended = True
        self._half_closed_at = self._core.now
        self._pipe.write_eof()
        self._close_if_over()
        return True

    def client_gone(self) -> None:
        self._pipe.reset()
        self._over("")

    def client_full(self, *, full: bool) -> None:
        if full:
            self._pipe.pause_reading()
        else:
            self._pipe.resume_reading()

    # The pipe

    def pipe_data(self, data: bytes) -> None:
        self._bytes_out += len(data)
        self._conn.transport.write(data)

    def pipe_eof(self) -> None:
        self._pipe_ended = True
        self._half_closed_at = self._core.now
        if not self._conn.transport.is_closing():
            self._conn.transport.write_eof()
        self._close_if_over()

    def pipe_lost(self) -> None:
        self._over("")
        self._conn.cut()

    def pipe_full(self, *, full: bool) -> None:
        self._conn.hold_for_pipe(full=full)

    # The end

    def check(self, now: float) -> None:
        """Called about once a second: one side ended long ago, the other never did."""
        if (self._client_ended or self._pipe_ended) and now - self._half_closed_at > MAX_TUNNEL_HALF_CLOSED_S:
            self._pipe.reset()
            self._over("tunnel:half_closed")
            self._conn.cut()

    def _close_if_over(self) -> None:
        if self._client_ended and self._pipe_ended:
            self._pipe.close()
            self._over("")
            self._conn.cut()

    def _over(self, code: str) -> None:
        self._tell_over(self._bytes_in, self._bytes_out, code)
