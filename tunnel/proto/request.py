"""A request's head: parsed whole and strictly, or refused.

`RequestFields` is a pure function of the field lines alone, so a connection may keep the last one and compare bytes:
clients that keep a connection mostly send the same lines again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tunnel.proto.authority import Authority, parse_authority
from tunnel.proto.errors import RequestRefused
from tunnel.proto.fields import OWS, UNLISTABLE, Name, content_length, name_of_request, split_fields, tokens
from tunnel.proto.upgrade import allowed_tokens

MAX_HEAD_BYTES = 64 * 1024  # request line and fields together
MAX_TARGET_BYTES = 32 * 1024  # of a URL
MAX_FIELDS = 256  # of a request

_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([\x21-\x7e]+) HTTP/1\.([01])\r\n")
_VERSION = re.compile(rb"[A-Z][A-Z-]{0,31} [\x21-\x7e]+ HTTP/[0-9](?:\.[0-9])?\r\n")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([/?].*)?", re.DOTALL)

_PASS = Name.PASS  # a local name: it is compared once per header line of every request
REFUSED_METHODS = frozenset({b"CONNECT", b"TRACE", b"TRACK"})
IDEMPOTENT_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"})


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What the field lines say."""

    authority: Authority
    lines: bytes  # those that go on, in their order, each with its CRLF; Host among them, rebuilt
    content_length: int | None
    chunked: bool
    close: bool
    keep_alive: bool
    upgrade: bytes  # the tokens that may be asked for; empty if none
    websocket_key: bytes
    expect_continue: bool
    te_trailers: bool
    accept: bytes
    user_agent: bytes
    forwarding: tuple[tuple[bytes, bytes], ...]  # what the client claims; for trusted proxies only

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.content_length)


class RequestHead(NamedTuple):
    """A request, ready to be routed. (A tuple, for one is made per request.)"""

    method: bytes
    target: bytes  # origin-form or *, byte for byte as it came
    minor: int  # of HTTP/1.x
    fields: RequestFields

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants the connection kept. HTTP/1.0's keep-alive is not offered."""
        return self.minor == 1 and not self.fields.close

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent a second time without harm, and is at hand to be sent."""
        return self.method in IDEMPOTENT_METHODS and not self.fields.has_body and not self.fields.upgrade


def field_lines_start(head: bytes) -> int:
    """Where the field lines begin."""
    return head.find(b"\n") + 1


def parse_request(head: bytes, known: tuple[bytes, RequestFields] | None = None) -> RequestHead:
    """A head that ends in CRLF CRLF. `known` are the field lines of an earlier head and what they were found to say."""
    match = _LINE.match(head)
    if match is None:
        raise _bad_line(head)
    method, target, minor = match.groups()
    if method in REFUSED_METHODS:
        raise RequestRefused(405, "request:method", f"{method.decode()} is not served here.")
    if len(target) > MAX_TARGET_BYTES:
        raise RequestRefused(414, "request:target_too_long", f"The URL is longer than {MAX_TARGET_BYTES} bytes.")
    start = match.end()
    if known is not None and head.endswith(known[0]) and len(head) - start == len(known[0]):
        fields = known[1]
    else:
        fields = parse_fields(head, start)
    if minor == b"0" and fields.chunked:
        raise RequestRefused(400, "request:framing", "HTTP/1.0 has no Transfer-Encoding.")
    if target[0] != 0x2F or b"#" in target or b"\\" in target:
        target = _origin_form(method, target, fields.authority)
    return RequestHead(method, target, 1 if minor == b"1" else 0, fields)


def parse_fields(head: bytes, start: int) -> RequestFields:
    """The field lines of `head` from `start` on."""
    pairs = split_fields(head, start)
    if pairs is None:
        raise RequestRefused(400, "request:field", "A header line is malformed.")
    if len(pairs) > MAX_FIELDS:
        raise RequestRefused(431, "request:fields", f"The request has more than {MAX_FIELDS} header fields.")
    reading = _Reading()
    lines = reading.lines
    for name, value in pairs:
        kind = name_of_request(name)
        if kind is _PASS:
            lines.append((name, value.strip(OWS)))
        else:
            reading.field(kind, name, value.strip(OWS))
    return reading.done()


class _Reading:
    """Collects one block of fields. Whatever may be there only once is checked where it is met."""

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, bytes]] = []
        self.authority: Authority | None = None
        self.length: int | None = None
        self.chunked = False
        self.connection: list[bytes] = []
        self.upgrade: list[bytes] = []
        self.websocket_key = b""
        self.expect = False
        self.te_trailers = False
        self.accept = b""
        self.user_agent = b""
        self.forwarding: list[tuple[bytes, bytes]] = []

    def field(self, kind: Name, name: bytes, value: bytes) -> None:
        match kind:
            case Name.HOST:
                if self.authority is not None:
                    raise RequestRefused(400, "host:twice", "There is more than one Host header.")
                self.authority = parse_authority(value)
                self.lines.append((name, self.authority.text))
            case Name.ACCEPT:
                self.accept += b"," + value if self.accept else value
                self.lines.append((name, value))
            case Name.USER_AGENT:
                self.user_agent = value
                self.lines.append((name, value))
            case Name.WEBSOCKET_KEY:
                if self.websocket_key:
                    raise RequestRefused(400, "request:upgrade", "There is more than one Sec-WebSocket-Key.")
                self.websocket_key = value
                self.lines.append((name, value))
            case Name.CONTENT_LENGTH:
                length = content_length(value)
                if length is None or self.length is not None:
                    raise RequestRefused(400, "request:framing", "Content-Length must be one plain number.")
                self.length = length
            case Name.TRANSFER_ENCODING:
                if value.lower() != b"chunked" or self.chunked:
                    raise RequestRefused(400, "request:framing", "Transfer-Encoding must be chunked, once.")
                self.chunked = True
            case Name.FORWARDING:
                self.forwarding.append((name.lower(), value))
            case Name.DROP | Name.TRAILER:
                pass
            case Name.SET_COOKIE | Name.WEBSOCKET_ACCEPT:
                self.lines.append((name, value))
            case _:
                self._hop_field(kind, value)

    def _hop_field(self, name: Name, value: bytes) -> None:
        if name is Name.EXPECT:
            if value.lower() != b"100-continue":
                raise RequestRefused(417, "request:expect", "Only 100-continue can be expected.")
            self.expect = True
        elif name is Name.UPGRADE:
            self.upgrade += allowed_tokens(value)
        else:
            found = tokens(value) if value else []
            if name is Name.TE:
                self.te_trailers = b"trailers" in value.lower()
            elif found is None:
                raise RequestRefused(400, "request:connection", "The Connection header is malformed.")
            else:
                self.connection += found

    def done(self) -> RequestFields:
        if self.authority is None:
            raise RequestRefused(400, "host:missing", "There is no Host header.")
        if self.chunked and self.length is not None:
            raise RequestRefused(400, "request:framing", "Content-Length and Transfer-Encoding exclude each other.")
        listed = frozenset(self.connection)
        if listed & UNLISTABLE:
            raise RequestRefused(400, "request:connection", "The Connection header names a field that must go through.")
        upgrade = self.upgrade if b"upgrade" in listed and not self.chunked and not self.length else []
        dropped = listed - {b"close", b"keep-alive", b"upgrade"}
        lines = [(n, v) for n, v in self.lines if n.lower() not in dropped] if dropped else self.lines
        return RequestFields(
            authority=self.authority,
            lines=b"".join([b"%b: %b\r\n" % line for line in lines]),
            content_length=self.length,
            chunked=self.chunked,
            close=b"close" in listed,
            keep_alive=b"keep-alive" in listed,
            upgrade=b", ".join(upgrade),
            websocket_key=self.websocket_key,
            expect_continue=self.expect,
            te_trailers=self.te_trailers,
            accept=self.accept,
            user_agent=self.user_agent,
            forwarding=tuple(self.forwarding),
        )


def _origin_form(method: bytes, target: bytes, authority: Authority) -> bytes:
    if b"#" in target or b"\\" in target.partition(b"?")[0]:
        raise RequestRefused(400, "request:target", "The request target has a character that no URL has.")
    if target.startswith(b"/"):
        return target
    if target == b"*" and method == b"OPTIONS":
        return target
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise RequestRefused(400, "request:target", "The request target is neither a path nor a URL.")
    if parse_authority(match[1]) != authority:
        raise RequestRefused(400, "host:mismatch", "The URL and the Host header name different hosts.")
    rest = match[2] or b"/"
    return rest if rest.startswith(b"/") else b"/" + rest


def _bad_line(head: bytes) -> RequestRefused:
    if _VERSION.match(head):
        return RequestRefused(505, "request:version", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    return RequestRefused(400, "request:line", "The request line is malformed.")
