"""The heads this edge writes: to the backend, and back to the client.

Framing and hop-by-hop fields are always ours, never copied.
"""

from __future__ import annotations

from http import HTTPStatus

from tunnel.proto.fields import OWS
from tunnel.proto.request import RequestFields, RequestHead
from tunnel.proto.response import Framing, ResponseHead

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


def forwarding_lines(fields: RequestFields, client: str, scheme: str, *, trusted: bool) -> bytes:
    """What we say about the client. From a trusted proxy, its own word about the client in front of it is kept.

    No Via: servers that see one switch compression off for everybody.
    """
    address, proto, host = client.encode(), scheme.encode(), fields.authority.text
    if trusted:
        claims = dict(fields.forwarding)
        chain = [v for n, v in fields.forwarding if n == b"x-forwarded-for" and v]
        first = b", ".join(chain).partition(b",")[0].strip(OWS) or address
        chain.append(address)
        proto = b"https" if claims.get(b"x-forwarded-proto", proto).lower() == b"https" else b"http"
        return _lines(first, b", ".join(chain), proto, host)
    return _lines(address, address, proto, host)


def _lines(client: bytes, chain: bytes, proto: bytes, host: bytes) -> bytes:
    node = b'"[%b]"' % client if b":" in client else client
    safe = node if b'"' not in client else b"unknown"
    return (
        b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\nX-Forwarded-Host: %b\r\nX-Real-IP: %b\r\n"
        b'Forwarded: for=%b;host="%b";proto=%b\r\n'
    ) % (chain, proto, host, client, safe, host, proto)


def request_head(head: RequestHead, forwarding: bytes, *, expect_continue: bool) -> bytes:
    """The head that goes to the backend."""
    fields = head.fields
    if fields.chunked:
        framing = b"Transfer-Encoding: chunked\r\n"
    elif fields.content_length is not None:
        framing = b"Content-Length: %d\r\n" % fields.content_length
    else:
        framing = b""
    if expect_continue:
        framing += b"Expect: 100-continue\r\n"
    if fields.upgrade:
        framing += b"Connection: Upgrade\r\nUpgrade: %b\r\n" % fields.upgrade
    if fields.te_trailers:
        framing += b"TE: trailers\r\n"
    return b"%b %b HTTP/1.1\r\n%b%b%b\r\n" % (head.method, head.target, fields.lines, forwarding, framing)


def response_head(head: ResponseHead, *, minor: int, close: bool) -> bytes:
    """The head that goes to the client."""
    if head.framing is Framing.CHUNKED or head.framing is Framing.CLOSE:
        framing = b"Transfer-Encoding: chunked\r\n" if minor else b""
    elif head.content_length is not None:
        framing = b"Content-Length: %d\r\n" % head.content_length
    else:
        framing = b""
    if close:
        framing += b"Connection: close\r\n"
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (head.status, head.reason, head.lines, framing)


def interim_head(head: ResponseHead) -> bytes:
    """A 1xx on its way to the client."""
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (head.status, head.reason, head.lines)


def switching_head(head: ResponseHead) -> bytes:
    """The 101 that makes both connections a plain pipe."""
    return b"HTTP/1.1 101 %b\r\n%bConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % (
        head.reason or b"Switching Protocols",
        head.lines,
        head.upgrade,
    )


def own_response(status: int, fields: list[tuple[str, str]], body: bytes, *, to_head: bool, close: bool) -> bytes:
    """An answer of the edge itself."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b""))]
    lines += [f"{name}: {value}\r\n".encode() for name, value in fields]
    lines.append(b"Content-Length: %d\r\n" % len(body))
    if close:
        lines.append(b"Connection: close\r\n")
    return b"".join(lines) + b"\r\n" + (b"" if to_head else body)
