"""One client's connection: heads in, one exchange at a time, and the end of it.

The connection knows HTTP's outside (heads, keep-alive, pipelining, deadlines, lingering); what happens between a head
and the end of its answer is an Exchange's. Reading is held for reasons that add up: it goes on when none is left.
"""

from __future__ import annotations

import asyncio
from typing import cast

from tunnel.edge.core import Core
from tunnel.edge.exchange import Exchange
from tunnel.edge.hold import Hold
from tunnel.edge.limits import (
    HALF_CLOSED_S,
    LINGER_BYTES,
    LINGER_S,
    PIPELINE_BYTES,
    WRITE_HIGH_BYTES,
    WRITE_LOW_BYTES,
)
from tunnel.edge.pages import Problem
from tunnel.edge.pipes import reset
from tunnel.edge.status import StatusAnswer, asks_status
from tunnel.edge.upgraded import Upgraded
from tunnel.edge.waking import WaitingPage, gets_page
from tunnel.proto.accept import prefers_json
from tunnel.proto.errors import RequestRefused
from tunnel.proto.forward import forwarding_lines, own_response
from tunnel.proto.head import HeadBuffer, HeadTooLong, MalformedHead
from tunnel.proto.request import MAX_HEAD_BYTES, RequestFields, RequestHead, field_lines_start, parse_request


class ClientConnection(asyncio.Protocol):
    """A connection to the public port."""

    __slots__ = (
        "_ahead",
        "_core",
        "_eof_at",
        "_exchange",
        "_forwarding",
        "_full_since",
        "_head",
        "_head_since",
        "_heard_at",
        "_holds",
        "_known",
        "_lingered",
        "_lingering_since",
        "_trusted",
        "client",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, core: Core) -> None:
        self._core = core
        self._head = HeadBuffer(MAX_HEAD_BYTES)
        self._known: tuple[bytes, RequestFields] | None = None  # the last field lines, and what they said
        self._forwarding = b""  # what we say about this client, under those field lines
        self._exchange: Exchange | Upgraded | StatusAnswer | WaitingPage | None = None
        self._ahead = b""
        self._holds = 0
        self._heard_at = core.now
        self._head_since = 0.0
        self._full_since = 0.0
        self._eof_at = 0.0
        self._lingering_since = 0.0
        self._lingered = 0

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else ""
        self._trusted = self.client in self._core.trusted
        self._core.clients.add(self)
        if len(self._core.clients) > self._core.limits.max_connections or self._core.draining:
            self.transport.abort()
        self.transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._core.now
        exchange = self._exchange
        if exchange is None and not self._ahead:
            self._read_heads(data)
        elif exchange is not None and exchange.wants_data:
            exchange.client_data(data)
        else:
            self.read_ahead(data)

    def eof_received(self) -> bool:
        exchange = self._exchange
        if exchange is None:
            return False
        self._eof_at = self._core.now or 1.0
        return exchange.client_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._core.clients.discard(self)
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.client_gone()

    def pause_writing(self) -> None:
        self._full_since = self._core.now or 1.0
        if self._exchange is not None:
            self._exchange.client_full(full=True)

    def resume_writing(self) -> None:
        self._full_since = 0.0
        if self._exchange is not None:
            self._exchange.client_full(full=False)
        else:
            self._go_on()

    # For the exchange

    def hold(self, why: int) -> None:
        """Stop reading for one more reason."""
        if not self._holds and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds |= why

    def release(self, why: int) -> None:
        """One reason less not to read."""
        if self._holds & why:
            self._holds &= ~why
            if not self._holds and not self.transport.is_closing():
                self.transport.resume_reading()

    def hold_for_pipe(self, *, full: bool) -> None:
        """The pipe takes no more for now, or takes more again."""
        if full:
            self.hold(Hold.PIPE_FULL)
        else:
            self.release(Hold.PIPE_FULL)

    def read_ahead(self, data: bytes) -> None:
        """Keep what came after the request being served."""
        self._ahead += data
        if len(self._ahead) > PIPELINE_BYTES:
            self.hold(Hold.AHEAD)

    @property
    def has_ahead(self) -> bool:
        return bool(self._ahead)

    def go_on_with(self, exchange: Exchange) -> None:
        """The request being served is this one's from here on; what came after it is kept ahead already."""
        self._exchange = exchange
        exchange.start(b"")

    def switch(self, upgraded: Upgraded) -> bytes:
        """From here on the client talks to the app; answers what it has said already."""
        self._exchange = upgraded
        self.release(Hold.AHEAD)
        return self._take_ahead()

    def _take_ahead(self) -> bytes:
        ahead, self._ahead = self._ahead, b""
        return ahead

    def over(self, *, keep: bool, body_unread: bool) -> None:
        """The exchange has ended and everything of its answer was written."""
        self._exchange = None
        if not keep or self._core.draining or (self._eof_at and not self._ahead):
            self._end(linger=body_unread)
            return
        self._go_on()

    def _go_on(self) -> None:
        self.release(Hold.ANY)
        if self._ahead:
            self._read_heads(self._take_ahead())

    def cut(self, *, ends_by_close: bool = False) -> None:
        """The answer cannot be completed: end the connection so that the client sees it is short.

        Of an answer whose end is the end of its connection, only a reset tells that.
        """
        self._exchange = None
        if ends_by_close:
            reset(self.transport)
        else:
            self.transport.close()

    # Heads

    def _read_heads(self, data: bytes) -> None:
        while data and self._exchange is None:
            if self._lingering_since or self.transport.is_closing():
                self._discard(data)
                return
            if self._full_since:  # no further answers for a client that does not take the ones it has
                self._ahead = data
                self.hold(Hold.AHEAD)
                return
            try:
                found = self._head.feed(data)
                if found is None:
                    self._head_since = self._head_since or self._core.now or 1.0
                    return
                self._head_since = 0.0
                head, data = found
                self._begin(head, data)
            except RequestRefused as e:
                self._refuse(e)
            except HeadTooLong as e:
                if e.in_first_line:
                    self._refuse(RequestRefused(414, "request:target_too_long", "The URL is too long for this edge."))
                else:
                    message = f"The edge takes {MAX_HEAD_BYTES} bytes of headers; the app has not seen this request."
                    self._refuse(RequestRefused(431, "request:head_too_long", message))
            except MalformedHead:
                self._refuse(RequestRefused(400, "request:malformed", "These bytes are not an HTTP request."))

    def _begin(self, raw: bytes, rest: bytes) -> None:
        if raw.startswith(b"\r\n"):  # RFC 9112 2.2: one empty line before a request is forgiven
            raw = raw[2:]
        head = parse_request(raw, self._known)
        fields = head.fields
        if self._known is None or fields is not self._known[1]:
            self._known = (raw[field_lines_start(raw) :], fields)
            self._forwarding = forwarding_lines(fields, self.client, "http", trusted=self._trusted)
        port = fields.authority.port
        if port is not None and port not in self._core.ports:
            raise RequestRefused(421, "host:port", f"This edge does not listen on port {port}.")
        route = self._core.router.find(fields.authority.hostname)
        if route is None:
            self._unrouted(head)
            return
        exchange: Exchange | StatusAnswer | WaitingPage
        if asks_status(head):
            exchange = StatusAnswer(self._core, self, head, route)
        elif gets_page(route, head):
            exchange = WaitingPage(self._core, self, head, route, self._forwarding)
        else:
            exchange = Exchange(self._core, self, head, route, self._forwarding)
        self._exchange = exchange
        exchange.start(rest)

    # Answers of our own

    def _unrouted(self, head: RequestHead) -> None:
        problem = Problem(404, "route:unknown", "There is no app at this address.")
        keep = head.keeps_alive and not head.fields.has_body and not self._core.draining
        self.answer(problem, head, close=not keep)
        self.log(head, problem)
        if not keep:
            self._end(linger=head.fields.has_body)

    def answer(self, problem: Problem, head: RequestHead, *, close: bool) -> None:
        """Write a page of the edge's own."""
        asked = head.fields
        fields, body = self._core.pages.answer(
            problem, hostname=asked.authority.hostname, as_json=prefers_json(asked.accept)
        )
        self.transport.write(own_response(problem.status, fields, body, to_head=head.method == b"HEAD", close=close))

    def _refuse(self, refused: RequestRefused) -> None:
        problem = Problem(refused.status, refused.code, refused.message)
        fields, body = self._core.pages.answer(problem, hostname="", as_json=False)
        self.transport.write(own_response(refused.status, fields, body, to_head=False, close=True))
        self.log(None, problem)
        self._end(linger=True)

    def log(self, head: RequestHead | None, problem: Problem) -> None:
        """An access line for a request that went nowhere."""
        core = self._core
        core.access.add(core.next_id(), self.client, head, None, problem.status, problem.code)

    # The end

    def _end(self, *, linger: bool) -> None:
        if self.transport.is_closing():
            return
        if not linger or self._eof_at:
            self.transport.close()
            return
        # Closing with unread bytes would reset the connection, and the client might never see our answer.
        self._lingering_since = self._core.now or 1.0
        self._ahead = b""
        self.transport.write_eof()
        if self._holds:
            self._holds = 0
        self.transport.resume_reading()

    def _discard(self, data: bytes) -> None:
        self._lingered += len(data)
        if self._lingered > LINGER_BYTES:
            self.transport.abort()

    def drain(self) -> None:
        """The edge is going: an idle connection closes now, a busy one after its answer."""
        if self._exchange is None and not self._lingering_since and not self._head:
            self.transport.close()

    def check(self, now: float) -> None:
        """Called about once a second: deadlines."""
        exchange, limits = self._exchange, self._core.limits
        if self._full_since and now - self._full_since > limits.write_stall_s:
            reset(self.transport)
        elif exchange is None:
            self._check_idle(now)
        elif isinstance(exchange, Upgraded):
            exchange.check(now)
        elif self._eof_at and now - self._eof_at > HALF_CLOSED_S:
            reset(self.transport)
        elif exchange.wants_data and not self._holds and now - self._heard_at > limits.body_silence_s:
            message = f"No byte of the body for {limits.body_silence_s:.0f} s."
            exchange.fail(Problem(408, "request:body_timeout", message))
        elif exchange.waits_since and now - exchange.waits_since > limits.response_head_s:
            message = f"The app did not answer for {limits.response_head_s:.0f} s."
            exchange.fail(Problem(504, "response:timeout", message))

    def _check_idle(self, now: float) -> None:
        if self._lingering_since:
            if now - self._lingering_since > LINGER_S:
                self.transport.abort()
        elif self._head_since:
            if now - self._head_since > self._core.limits.head_deadline_s:
                self._refuse(RequestRefused(408, "request:head_timeout", "The request's head took too long."))
        elif now - self._heard_at > self._core.limits.client_idle_s:
            self.transport.close()
