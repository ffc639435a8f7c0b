"""The port hosts dial: the hello of each connection, and the link's control messages.

Nothing is read past a hello before its token is found right, in constant time; data connections must be of the session
whose link is up.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import cast

import structlog

from tunnel.edge.hosts import Host, Hosts
from tunnel.edge.limits import HELLO_DEADLINE_S, PING_EVERY_S, SILENCE_LIMIT_S
from tunnel.edge.pipes import Pipe
from tunnel.proto.lines import LineBuffer
from tunnel.wire import (
    Code,
    HostHello,
    Kind,
    Message,
    Ping,
    Pong,
    Refused,
    Welcome,
    WireError,
    decode_host_hello,
    decode_message,
    encode_refusal,
)

_log = structlog.get_logger(__name__)


class HostConnection(asyncio.Protocol):
    """A connection from a host, until its hello says which kind it is."""

    _transport: asyncio.Transport
    _deadline: asyncio.TimerHandle

    def __init__(self, hosts: Hosts, token: str, edge_name: str, on_linked: Callable[[str], None]) -> None:
        self._hosts = hosts
        self._token = token.encode()
        self._edge_name = edge_name
        self._on_linked = on_linked
        self._lines = LineBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(HELLO_DEADLINE_S, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        self._lines.feed(data)
        try:
            line = self._lines.take_line()
            if line is not None:
                self._greet(decode_host_hello(line))
        except WireError as e:
            self._refuse(Refused(Code.TUNNEL_MALFORMED, "hello", str(e)))
        except Refused as e:
            self._refuse(e)

    def _refuse(self, refused: Refused) -> None:
        _log.warning(
            "host refused", code=refused.code, reason=refused.message, peer=self._transport.get_extra_info("peername")
        )
        self._transport.write(encode_refusal(refused))
        self._transport.close()

    def _greet(self, hello: HostHello) -> None:
        if not hmac.compare_digest(hello.token.encode(), self._token):
            raise Refused(Code.TUNNEL_TOKEN, "hello", "The token is not this edge's.")
        welcome = Welcome(self._edge_name).encode()
        if hello.kind is Kind.LINK:
            self._deadline.cancel()
            self._transport.write(welcome)
            HostLink(self._transport, self._hosts.get(hello.host), hello.session, self._lines)
            self._on_linked(hello.host)
            return
        host = self._hosts.find(hello.host)
        if host is None or host.link is None or not hmac.compare_digest(host.session.encode(), hello.session.encode()):
            raise Refused(Code.TUNNEL_SESSION, "hello", "This session has no link here.")
        if self._lines.take_rest():
            raise Refused(Code.TUNNEL_MALFORMED, "hello", "A data connection speaks only when it is spoken to.")
        self._deadline.cancel()
        self._transport.write(welcome)
        host.offer(Pipe(self._transport))


class HostLink(asyncio.Protocol):
    """An accepted link."""

    def __init__(self, transport: asyncio.Transport, host: Host, session: str, lines: LineBuffer) -> None:
        self._transport = transport
        self._host = host
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._pinged_at = self._loop.time()
        transport.set_protocol(self)
        host.linked(self, session)
        _log.info("host linked", host=host.id, peer=transport.get_extra_info("peername"))
        self.data_received(b"")

    def send(self, message: Message) -> None:
        self._transport.write(message.encode())

    def close(self) -> None:
        self._transport.close()

    def check(self, now: float) -> None:
        """Ping when it is time; close a link that has been silent too long."""
        if now - self._heard_at > SILENCE_LIMIT_S:
            _log.warning("link silent", host=self._host.id)
            self._transport.abort()
        elif now - self._pinged_at >= PING_EVERY_S:
            self._pinged_at = now
            self.send(Ping(int(now * 1000)))

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._lines.feed(data)
        try:
            while (line := self._lines.take_line()) is not None:
                match decode_message(line):
                    case Ping(t):
                        self.send(Pong(t))
                    case _:
                        pass  # a pong only breaks the silence; the rest is a newer host's
        except WireError as e:
            _log.warning("link closed for a malformed message", host=self._host.id, error=str(e))
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        _log.warning("host link lost", host=self._host.id, error=str(exc or ""))
        self._host.lost(self, self._loop.time())
