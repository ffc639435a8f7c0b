"""The control socket: whoever may open it may publish routes and reach hosts.

A Unix socket; its mode, 0660, is its authentication. Streams opened here do not count as activity: the platform's own
calls keep nothing awake.
"""

from __future__ import annotations

import asyncio
from typing import cast

import structlog

from tunnel.edge.limits import (
    CONTROL_CONNECTIONS,
    CONTROL_HELLO_S,
    CONTROL_TABLE_S,
    WRITE_HIGH_BYTES,
    WRITE_LOW_BYTES,
)
from tunnel.edge.pipes import Pipe
from tunnel.edge.router import Router
from tunnel.edge.streams import Streams
from tunnel.proto.lines import LineBuffer
from tunnel.tasks import spawn
from tunnel.wire import (
    MAX_TABLE_BYTES,
    OPENED_OK,
    Code,
    Open,
    OpenHello,
    Refused,
    RoutesHello,
    ToHost,
    WireError,
    decode_control_hello,
    encode_published,
    encode_refusal,
)

_log = structlog.get_logger(__name__)


class ControlConnections(set["ControlConnection"]):
    """Those open now; what they share."""

    def __init__(self, router: Router, streams: Streams) -> None:
        super().__init__()
        self.router = router
        self.streams = streams


class ControlConnection(asyncio.Protocol):
    """One connection from control: a publication, or one end of a stream."""

    _transport: asyncio.Transport
    _deadline: asyncio.TimerHandle

    def __init__(self, others: ControlConnections) -> None:
        self._others = others
        self._lines = LineBuffer()
        self._hello: OpenHello | RoutesHello | None = None
        self._pipe: Pipe | None = None
        self._task: asyncio.Task[None] | None = None
        self._eof = self._pipe_eof = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._deadline = asyncio.get_running_loop().call_later(CONTROL_HELLO_S, self._transport.abort)
        self._others.add(self)
        if len(self._others) > CONTROL_CONNECTIONS:
            self._refuse(Refused(Code.HOST_BUSY, "control", f"{CONTROL_CONNECTIONS} connections are open already."))

    def data_received(self, data: bytes) -> None:
        if self._pipe is not None:
            self._pipe.transport.write(data)
            return
        self._lines.feed(data)
        try:
            self._read_lines()
        except WireError as e:
            self._refuse(Refused(Code.TUNNEL_MALFORMED, "control", str(e)))

    def eof_received(self) -> bool:
        self._eof = True
        if self._pipe is not None:
            self._pipe.write_eof()
            self._close_if_over()
        return self._task is not None or self._pipe is not None

    def pause_writing(self) -> None:
        if self._pipe is not None:
            self._pipe.pause_reading()

    def resume_writing(self) -> None:
        if self._pipe is not None:
            self._pipe.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._others.discard(self)
        if self._task is not None and isinstance(self._hello, OpenHello):
            self._task.cancel()
        if self._pipe is not None:
            self._pipe.reset()

    def close(self) -> None:
        """The edge is going."""
        self._transport.abort()

    def _read_lines(self) -> None:
        if self._hello is None:
            line = self._lines.take_line()
            if line is None:
                return
            self._hello = decode_control_hello(line)
            self._deadline.cancel()
            if isinstance(self._hello, OpenHello):
                self._transport.pause_reading()  # what follows is the stream's, and waits for it in the socket
                self._task = spawn(self._open(self._hello), name="control-open")
                return
            self._lines.set_limit(MAX_TABLE_BYTES)
            self._deadline = asyncio.get_running_loop().call_later(CONTROL_TABLE_S, self._transport.abort)
        if isinstance(self._hello, RoutesHello) and self._task is None:
            line = self._lines.take_line()
            if line is not None:
                self._deadline.cancel()
                self._task = spawn(self._publish(line), name="control-routes")

    def _refuse(self, refused: Refused) -> None:
        self._transport.write(encode_refusal(refused))
        self._transport.close()

    async def _publish(self, line: bytes) -> None:
        try:
            generation = await self._others.router.publish(line)
        except WireError as e:
            _log.warning("route table refused", error=str(e))
            self._refuse(Refused(Code.TUNNEL_MALFORMED, "routes", str(e)))
        else:
            self._transport.write(encode_published(generation))
            self._transport.close()

    async def _open(self, hello: OpenHello) -> None:
        try:
            pipe, early = await self._stream(hello)
        except Refused as e:
            self._refuse(e)
            return
        finally:
            self._task = None
        self._pipe = pipe
        pipe.owner = self
        self._transport.write(OPENED_OK + early)
        rest = self._lines.take_rest()
        if rest:
            pipe.transport.write(rest)
        if self._eof:
            pipe.write_eof()
        pipe.resume_reading()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    async def _stream(self, hello: OpenHello) -> tuple[Pipe, bytes]:
        to = hello.to
        if isinstance(to, ToHost):
            return await self._others.streams.open(to.host, Open(to))
        route = self._others.router.of_machine(to.machine)
        if route is None:
            raise Refused(Code.MACHINE_UNKNOWN, "route", "No route leads to this machine, so its host is not known.")
        return await self._others.streams.open(route.host, Open(to, "control"))

    def _close_if_over(self) -> None:
        if self._eof and self._pipe_eof:
            if self._pipe is not None:
                self._pipe.close()
                self._pipe = None
            self._transport.close()

    # PipeOwner

    def pipe_data(self, data: bytes) -> None:
        self._transport.write(data)

    def pipe_eof(self) -> None:
        self._pipe_eof = True
        if not self._transport.is_closing():
            self._transport.write_eof()
        self._close_if_over()

    def pipe_lost(self) -> None:
        self._pipe = None
        self._transport.close()

    def pipe_full(self, *, full: bool) -> None:
        if not self._transport.is_closing():
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
