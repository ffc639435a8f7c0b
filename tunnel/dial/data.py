"""One data connection: hello, idle until the edge writes OPEN, then a stream.

States go one way only: greeting -> idle -> opening -> (a splice owns the connection) or closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

import structlog

from tunnel.dial.limits import (
    EARLY_BYTES_LIMIT,
    HELLO_TIMEOUT_S,
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    OPEN_LIMIT_S,
)
from tunnel.dial.splice import EdgeEnd, TargetEnd
from tunnel.dial.target import Handler, OpenGate, Target
from tunnel.dial.watch import watch
from tunnel.tasks import spawn
from tunnel.wire import (
    MAX_LINE_BYTES,
    Code,
    HostHello,
    Open,
    Refused,
    ToHost,
    WireError,
    decode_open,
    decode_welcome,
    encode_refusal,
)

_log = structlog.get_logger(__name__)


class State(Enum):
    """Where a data connection is before a splice takes it over."""

    GREETING = auto()
    IDLE = auto()
    OPENING = auto()
    CLOSED = auto()


class DataConnection(asyncio.Protocol):
    """A connection to the edge that waits to become a stream."""

    _transport: asyncio.Transport  # from `connection_made` on
    _deadline: asyncio.TimerHandle

    def __init__(
        self,
        hello: HostHello,
        handler: Handler,
        *,
        on_opening: Callable[[DataConnection], None],
        on_closed: Callable[[DataConnection], None],
    ) -> None:
        self._hello = hello
        self._handler = handler
        self._on_opening = on_opening
        self._on_closed = on_closed
        self._state = State.GREETING
        self._buffer = b""
        self._eof = False
        self._opening: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        """End it, whatever it is doing."""
        if self._opening is not None:
            self._opening.cancel()
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        keep_alive(transport.get_extra_info("socket"))
        transport.write(self._hello.encode())
        self._deadline = asyncio.get_running_loop().call_later(HELLO_TIMEOUT_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._state is State.GREETING:
            self._read_line(self._on_welcome)
        if self._state is State.IDLE:
            self._read_line(self._on_open)
        if self._state is State.OPENING and len(self._buffer) > EARLY_BYTES_LIMIT:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._eof = True
        return self._state is State.OPENING

    def connection_lost(self, exc: Exception | None) -> None:
        # A handler at work is left alone: others may wait for the same wake. Its socket is closed when it comes.
        self._closed()

    def _closed(self) -> None:
        self._deadline.cancel()
        if self._state is not State.CLOSED:
            self._state = State.CLOSED
            self._on_closed(self)

    def _read_line(self, on_line: Callable[[bytes], None]) -> None:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                self._give_up("line too long")
            return
        line, self._buffer = self._buffer[: end + 1], self._buffer[end + 1 :]
        try:
            on_line(line)
        except (WireError, Refused) as e:
            self._give_up(str(e))

    def _give_up(self, reason: str) -> None:
        _log.warning("data connection refused", reason=reason)
        self.close()

    def _on_welcome(self, line: bytes) -> None:
        decode_welcome(line)
        self._deadline.cancel()
        self._state = State.IDLE

    def _on_open(self, line: bytes) -> None:
        wanted = decode_open(line, host=self._hello.host)
        self._state = State.OPENING
        self._on_opening(self)
        self._opening = spawn(self._open(wanted), name=f"open-{wanted.request or 'host'}")

    async def _open(self, wanted: Open) -> None:
        try:
            async with asyncio.timeout(OPEN_LIMIT_S):
                target = await self._ask(wanted)
        except Refused as e:
            self._refuse(e)
        except TimeoutError:
            self._refuse(Refused(Code.WAKE_TIMEOUT, "open", f"not open after {OPEN_LIMIT_S:.0f} s"))
        except Exception:  # noqa: BLE001 - one stream's bug must not become a client's endless wait
            _log.exception("opening a stream failed", to=str(wanted.to))
            self._refuse(Refused(Code.WAKE_FAILED, "open", "the host agent failed; see its log"))
        else:
            await self._join(target)

    async def _ask(self, wanted: Open) -> Target:
        if isinstance(wanted.to, ToHost):
            return Target(await self._handler.open_host(), OpenGate())
        to = wanted.to
        if to.probe:
            raise Refused(Code.MACHINE_STATE, self._handler.machine_state(to.machine), "")
        return await self._handler.open_machine(
            to.machine, may_wake=to.may_wake, request=wanted.request, quiet=to.quiet
        )

    def _refuse(self, refused: Refused) -> None:
        self._transport.write(encode_refusal(refused))
        self._transport.close()

    async def _join(self, target: Target) -> None:
        edge = self._transport
        if self._state is State.CLOSED:
            target.sock.close()
            return
        edge_end = EdgeEnd(edge, target.gate, self._closed)
        try:
            transport = await adopt(target.sock, lambda: TargetEnd(edge, edge_end, target.opened))
        except OSError as e:
            target.sock.close()
            self._refuse(Refused(Code.APP_REFUSED, "connect", str(e)))
            return
        if edge.is_closing():
            transport.abort()
            return
        if target.watcher is not None:
            watch(transport, target.watcher)
        edge_end.start(transport, self._buffer, eof=self._eof)
        self._buffer = b""
        edge.resume_reading()


async def adopt(sock: socket.socket, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    """A transport on a connected socket of either family."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
    if sock.family == socket.AF_UNIX:
        transport, _ = await loop.create_unix_connection(factory, sock=sock)
    else:
        transport, _ = await loop.create_connection(factory, sock=sock)
    return transport


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel find out when the other end is gone."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)
