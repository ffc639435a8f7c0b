"""One request and its answer: from a parsed head to the last byte, over one pipe at a time.

A pipe is used again only when both messages ended exactly where their framing said. A request goes out a second time
only if it has no body, is idempotent, went out on a kept pipe, and not one byte of an answer came.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING

from tunnel.edge.core import Core
from tunnel.edge.hold import Hold
from tunnel.edge.limits import CONTINUE_AFTER_S, MAX_INTERIM_RESPONSES
from tunnel.edge.pages import Problem, problem_of
from tunnel.edge.pipes import Pipe
from tunnel.edge.upgraded import Upgraded
from tunnel.edge.waiting import Held, keep
from tunnel.edge.wake import leaves_asleep
from tunnel.proto.body import Body, CloseBody, LengthBody, NoBody
from tunnel.proto.chunked import ChunkedBody
from tunnel.proto.errors import BadBody, BadResponse
from tunnel.proto.forward import CONTINUE, interim_head, request_head, response_head, switching_head
from tunnel.proto.head import HeadBuffer, HeadTooLong, MalformedHead
from tunnel.proto.request import RequestHead
from tunnel.proto.response import MAX_RESPONSE_HEAD_BYTES, Framing, ResponseHead, parse_response
from tunnel.proto.upgrade import is_answer
from tunnel.tasks import spawn
from tunnel.wire import RAN, Open, Refused, Route, ToMachine

if TYPE_CHECKING:
    from tunnel.edge.listener import ClientConnection

CLIENT_GONE = 499  # in the access log only
WHOLE_BYTES = 16 * 1024  # up to here head and body are joined for one write; beyond, copying costs more than writev
_NO_BODY = NoBody()


class _At(Enum):
    HEAD = auto()  # no final answer yet
    BODY = auto()
    OVER = auto()


class Exchange:
    """A request under way. It owns its pipe."""

    # Defaults live on the class: an exchange is made per request, and most of this is never touched.
    _at = _At.HEAD
    _open_s = _first_byte_s = 0.0
    _bytes_in = _bytes_out = 0
    _body: Body = _NO_BODY
    _opening: asyncio.Task[None] | None = None
    _continue_timer: asyncio.TimerHandle | None = None
    _held: Held | None = None  # of the request's body, until there is a pipe
    _continued = False  # the client was told to go on with its body
    _interim = 0
    _pipe: Pipe | None = None
    _pipe_kind = ""
    _opened = RAN
    _pipe_held = False
    _response: ResponseHead | None = None
    _response_head: HeadBuffer | None = None  # from the first byte of an answer on
    _response_body: Body = _NO_BODY
    wants_data = False  # whether what the client sends belongs to this exchange
    waits_since = 0.0  # when the whole request was with the app, in coarse time; 0 once its answer has begun

    def __init__(self, core: Core, conn: ClientConnection, head: RequestHead, route: Route, forwarding: bytes) -> None:
        self._core = core
        self._conn = conn
        self._head = head
        self._route = route
        self._forwarding = forwarding
        self._id = core.next_id()
        self._started = core.time()
        self._leaves_asleep = leaves_asleep(route, head)
        self._may_wake = route.may_wake and not self._leaves_asleep
        self._close = not head.keeps_alive

    # From the client

    def start(self, rest: bytes) -> None:
        """Begin. `rest` came together with the head."""
        route, fields = self._route, self._head.fields
        self._core.activity.begin(route.host, route.machine, quiet=bool(self._leaves_asleep))
        if fields.chunked:
            self._body = ChunkedBody(limit_chunks=True)
            self.wants_data = True
        elif fields.content_length:
            self._body = LengthBody(fields.content_length)
            self.wants_data = True
        if rest:
            if self.wants_data:
                self.client_data(rest)
                if self._at is _At.OVER:
                    return
            else:
                self._conn.read_ahead(rest)
        if self._head.repeatable:
            pipe = self._core.kept.take(self._key())
            if pipe is not None:
                self._pipe_kind = "kept"
                self._send_on(pipe)
                return
        self._pipe_kind = "fresh"
        self._open()

    def client_data(self, data: bytes) -> None:
        """More of the body."""
        self._bytes_in += len(data)
        pipe = self._pipe
        try:
            out, rest = self._body.feed(data)
            if pipe is None:
                self._held = keep(self._held, out, self._core.streams.room, self._route.machine)
        except BadBody as e:
            self.fail(Problem(400, "request:body", f"The body's framing is broken: {e}."))
            return
        except Refused as e:
            self.fail(problem_of(e, self._leaves_asleep))
            return
        if self._body.done:
            self.wants_data = False
            self.waits_since = self._core.now if self._at is _At.HEAD else 0.0
        if pipe is not None:
            pipe.transport.writelines(out)
        elif self.wants_data:
            self._conn.hold(Hold.OPENING)
        if rest:
            self._conn.read_ahead(rest)

    def client_eof(self) -> bool:
        """The client will send no more; False if there is no point in going on."""
        return not self.wants_data

    def client_gone(self) -> None:
        """The client's connection is closed."""
        if self._at is not _At.OVER:
            self._drop_pipe()
            self._over(CLIENT_GONE if self._response is None else self._response.status, "client:gone")

    def client_full(self, *, full: bool) -> None:
        """The client takes no more for now, or takes more again."""
        self._pipe_held = full
        if self._pipe is not None:
            if full:
                self._pipe.pause_reading()
            else:
                self._pipe.resume_reading()

    # The pipe

    def _key(self) -> tuple[str, str, bool]:
        return self._route.host, self._route.machine, self._may_wake

    def _open(self) -> None:
        self._opening = spawn(self._open_pipe(), name=f"request-{self._id}")
        if self._head.fields.expect_continue and self._head.minor and not self._continued:
            loop = asyncio.get_running_loop()
            self._continue_timer = loop.call_later(CONTINUE_AFTER_S, self._say_continue)

    async def _open_pipe(self) -> None:
        route = self._route
        wanted = Open(ToMachine(route.machine, self._may_wake, quiet=bool(self._leaves_asleep)), self._id)
        try:
            pipe, early = await self._core.streams.open(route.host, wanted)
        except Refused as e:
            self._opening = None
            self.fail(problem_of(e, self._leaves_asleep))
            return
        finally:
            self._open_s = self._core.time() - self._started
        self._opening, self._opened = None, pipe.opened
        if early:
            pipe.reset()
            self.fail(Problem(502, "response:unasked", "The app spoke before it was asked anything."))
            return
        self._send_on(pipe)
        pipe.resume_reading()

    def _say_continue(self) -> None:
        self._continue_timer = None
        if not self._continued and self._pipe is None:
            self._continued = True
            self._conn.transport.write(CONTINUE)

    def _send_on(self, pipe: Pipe) -> None:
        if self._continue_timer is not None:
            self._continue_timer.cancel()
            self._continue_timer = None
        self._pipe = pipe
        pipe.owner = self
        expect = self._head.fields.expect_continue and not self._continued and self.wants_data
        data = request_head(self._head, self._forwarding, expect_continue=expect)
        if self._held is not None:
            pipe.transport.writelines([data, *self._held.take()])
        else:
            pipe.transport.write(data)
        if not self.wants_data:
            self.waits_since = self._core.now
        self._conn.release(Hold.OPENING)

    def _drop_pipe(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._pipe is not None:
            self._pipe.reset()
            self._pipe = None

    # From the pipe

    def pipe_data(self, data: bytes) -> None:
        if self._at is _At.BODY:
            self._bytes_out += len(data)
            self._pass_body(data)
        else:
            self._read_response(data)

    def pipe_lost(self) -> None:
        self.pipe_eof()

    def pipe_full(self, *, full: bool) -> None:
        self._conn.hold_for_pipe(full=full)

    def pipe_eof(self) -> None:
        if self._at is _At.BODY:
            try:
                tail = self._response_body.end()
            except BadBody as e:
                self._break(f"response:truncated ({e})")
                return
            if tail:
                self._conn.transport.write(tail)
            self._finish(pipe_reusable=False)
        elif self._at is _At.HEAD:
            untouched = self._response_head is None
            self._drop_pipe()
            if self._pipe_kind == "kept" and untouched:
                self._pipe_kind = "retried"
                self.waits_since = 0.0
                self._open()
            else:
                self.fail(Problem(502, "response:none", "The app closed the connection without an answer."))

    # The answer

    def _read_response(self, data: bytes) -> None:
        heads = self._response_head
        if heads is None:
            heads = self._response_head = HeadBuffer(MAX_RESPONSE_HEAD_BYTES)
        try:
            while True:
                found = heads.feed(data)
                if found is None:
                    return
                raw, data = found
                response = parse_response(
                    raw, to_head=self._head.method == b"HEAD", cookie_suffix=self._core.cookie_suffix
                )
                if response.status >= 200:
                    break
                if response.status == 101:
                    self._switch(response, data)
                    return
                self._pass_interim(response)
                if not data:
                    return
        except HeadTooLong:
            self.fail(Problem(502, "response:head_too_long", "The app sent more header bytes than the edge takes."))
        except MalformedHead:
            self.fail(Problem(502, "response:malformed", "What the app sent is not an HTTP response."))
        except BadResponse as e:
            self.fail(Problem(502, e.code, e.message))
        else:
            self._answer(response, data)

    def _pass_interim(self, response: ResponseHead) -> None:
        self._interim += 1
        if self._interim > MAX_INTERIM_RESPONSES:
            raise BadResponse("response:interim", "The app sent too many interim responses.")
        if response.status == 100:
            if self._continued:
                return
            self._continued = True
        if self._head.minor:
            self._conn.transport.write(interim_head(response))

    def _answer(self, response: ResponseHead, data: bytes) -> None:
        self._response = response
        self._at = _At.BODY
        self.waits_since = 0.0
        self._first_byte_s = self._core.time() - self._started
        # An answer before the end of the body: whatever follows it on this connection would be read as a request.
        early_bytes = bool(self._head.fields.upgrade) and self._conn.has_ahead
        self._close = self._close or self.wants_data or self._core.draining or early_bytes
        minor, framing, length = self._head.minor, response.framing, response.content_length
        head = response_head(response, minor=minor, close=self._close)
        # All of it is here: the usual small answer.
        if framing is Framing.LENGTH and length == len(data) <= WHOLE_BYTES:
            self._bytes_out = length
            self._conn.transport.write(head + data)
            self._finish(pipe_reusable=True)
            return
        if framing is Framing.LENGTH:
            self._response_body = LengthBody(length or 0)
        elif framing is Framing.CHUNKED:
            self._response_body = ChunkedBody(reframe=bool(minor))
        elif framing is Framing.CLOSE:
            self._response_body = CloseBody(chunked=bool(minor))
        if data or framing is Framing.NONE:
            self._bytes_out += len(data)
            self._pass_body(data, head)
        else:
            self._conn.transport.write(head)

    def _pass_body(self, data: bytes, head: bytes = b"") -> None:
        try:
            out, rest = self._response_body.feed(data)
        except BadBody as e:
            if head:
                self._conn.transport.write(head)
            self._break(f"response:body ({e})")
            return
        if head:
            out.insert(0, head)
        if len(out) == 1:
            self._conn.transport.write(out[0])
        elif out:
            self._conn.transport.writelines(out)
        if self._response_body.done:
            self._finish(pipe_reusable=not rest)

    def _finish(self, *, pipe_reusable: bool) -> None:
        """The answer is complete."""
        pipe, self._pipe = self._pipe, None
        response = self._response
        if pipe is not None and response is not None:
            unsent = self._body is not _NO_BODY and pipe.transport.get_write_buffer_size()
            if pipe_reusable and response.reusable and not self.wants_data and not unsent and not pipe.closed:
                if self._pipe_held:
                    pipe.resume_reading()
                self._core.kept.keep(self._key(), pipe, self._core.time())
            elif self.wants_data:
                pipe.reset()
            else:
                pipe.close()
        self._over(response.status if response else 0, "")
        self._conn.over(keep=not self._close, body_unread=self.wants_data)

    def fail(self, problem: Problem) -> None:
        """Answer with a page of our own, or cut the connection if an answer has begun."""
        if self._at is _At.OVER:
            return
        self._drop_pipe()
        if self._at is not _At.HEAD:
            self._break(problem.code)
            return
        self._close = self._close or self.wants_data or bool(self._head.fields.upgrade) or problem.status < 500
        self._conn.answer(problem, self._head, close=self._close)
        self._over(problem.status, problem.code)
        self._conn.over(keep=not self._close, body_unread=self.wants_data)

    def _break(self, code: str) -> None:
        self._drop_pipe()
        self._over(self._response.status if self._response else 0, code)
        self._conn.cut(ends_by_close=not self._head.minor and not isinstance(self._response_body, LengthBody))

    def _switch(self, response: ResponseHead, data: bytes) -> None:
        fields = self._head.fields
        if not fields.upgrade or not is_answer(
            fields.upgrade, response.upgrade, fields.websocket_key, response.websocket_accept
        ):
            raise BadResponse("response:upgrade", "The app switched to a protocol it was not asked for.")
        pipe, self._pipe = self._pipe, None
        if pipe is None:
            return
        self._first_byte_s = self._core.time() - self._started
        self._conn.transport.write(switching_head(response))
        upgraded = Upgraded(self._core, self._conn, pipe, self._tunnel_over)
        upgraded.start(data, self._conn.switch(upgraded))

    def _tunnel_over(self, bytes_in: int, bytes_out: int, code: str) -> None:
        self._bytes_in, self._bytes_out = bytes_in, bytes_out
        self._over(101, code)

    def _over(self, status: int, code: str) -> None:
        self._at = _At.OVER
        if self._held is not None:
            self._held.take()
        if self._continue_timer is not None:
            self._continue_timer.cancel()
        self._core.activity.end(self._route.machine)
        core, client, total_s = self._core, self._conn.client, self._core.time() - self._started
        core.access.add(
            *(self._id, client, self._head, self._route, status, code, self._pipe_kind),
            *(self._bytes_in, self._bytes_out, self._open_s, self._first_byte_s, total_s, self._opened),
        )
