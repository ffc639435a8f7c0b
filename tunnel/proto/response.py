"""A response's head: parsed whole, or not passed on at all.

A backend that is ambiguous about where its answer ends gets a 502: the next answer on that pipe would be anyone's.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from tunnel.proto.errors import BadResponse
from tunnel.proto.fields import OWS, Name, content_length, name_of_response, split_fields, tokens

MAX_RESPONSE_HEAD_BYTES = 256 * 1024  # of an answer; real apps set many cookies; still bounded
MAX_RESPONSE_FIELDS = 1024  # of an app's answer
MEMO_BYTES = 1024  # heads up to here are remembered

_PASS = Name.PASS  # a local name: it is compared once per header line of every response
_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*+))?\r\n")
_COOKIE_DOMAIN = re.compile(rb";[ \t]*domain[ \t]*=[ \t]*\.?([^;]*?)\.?[ \t]*(?=;|\Z)", re.IGNORECASE)


class Framing(Enum):
    """Where a body ends."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


class ResponseHead(NamedTuple):
    """A response, ready to be passed on. (A tuple: one is made per response, and frozen dataclasses are slow.)"""

    status: int
    reason: bytes
    lines: bytes  # the fields that go on, each with its CRLF; no framing among them
    framing: Framing
    content_length: int | None  # as declared: for HEAD and 304 it says what a GET would have had
    reusable: bool  # whether the pipe may carry another request after this answer
    upgrade: bytes
    websocket_accept: bytes


def parse_response(head: bytes, *, to_head: bool, cookie_suffix: bytes = b"") -> ResponseHead:
    """A head that ends in CRLF CRLF, in answer to a HEAD request or another.

    `cookie_suffix` is the domain all apps live under: a cookie for it, or for a domain above it, would be every app's.
    """
    if len(head) <= MEMO_BYTES:
        return _parse_memo(head, to_head, cookie_suffix)
    return _parse(head, to_head, cookie_suffix)


def _parse(head: bytes, to_head: bool, cookie_suffix: bytes) -> ResponseHead:  # noqa: FBT001 - kept positional for the memo
    match = _LINE.match(head)
    if match is None:
        raise BadResponse("response:line", "The app's status line is malformed.")
    minor, digits, reason = match.groups()
    status = int(digits)
    pairs = split_fields(head, match.end())
    if pairs is None:
        raise BadResponse("response:field", "The app sent a malformed header line.")
    if len(pairs) > MAX_RESPONSE_FIELDS:
        raise BadResponse("response:fields", f"The app sent more than {MAX_RESPONSE_FIELDS} header fields.")
    length: int | None = None
    chunked = False
    connection: list[bytes] = []
    upgrade = accept = b""
    lines: list[tuple[bytes, bytes]] = []
    for name, raw in pairs:
        value = raw.strip(OWS)
        kind = name_of_response(name)
        if kind is _PASS:
            lines.append((name, value))
        elif kind is Name.CONTENT_LENGTH:
            found = content_length(value)
            if found is None or length is not None:
                raise BadResponse("response:framing", "The app's Content-Length is not one plain number.")
            length = found
        elif kind is Name.TRANSFER_ENCODING:
            if value.lower() != b"chunked" or chunked or minor == b"0":
                raise BadResponse("response:framing", "The app's Transfer-Encoding is not chunked, once.")
            chunked = True
        elif kind is Name.CONNECTION:
            connection += tokens(value) or []
        elif kind is Name.UPGRADE:
            upgrade = value
        elif kind is Name.SET_COOKIE:
            lines.append((name, _narrow_cookie(value, cookie_suffix) if cookie_suffix else value))
        elif kind is not Name.DROP and kind is not Name.TE:
            if kind is Name.WEBSOCKET_ACCEPT:
                accept = value
            lines.append((name, value))
    if chunked and length is not None:
        raise BadResponse("response:framing", "The app sent both Content-Length and Transfer-Encoding.")
    dropped = frozenset(connection) - {b"close", b"keep-alive", b"upgrade"}
    if dropped:
        lines = [(n, v) for n, v in lines if n.lower() not in dropped]
    framing = _framing(status, length, chunked=chunked, to_head=to_head)
    reusable = minor == b"1" and b"close" not in connection and framing is not Framing.CLOSE and status != 101
    return ResponseHead(
        status=status,
        reason=reason or b"",
        lines=b"".join([b"%b: %b\r\n" % line for line in lines]),
        framing=framing,
        content_length=None if status < 200 or status == 204 else length,
        reusable=reusable,
        upgrade=upgrade,
        websocket_accept=accept,
    )


# Under load an app says the same head again and again within a second; this is a pure function of those bytes.
_parse_memo = lru_cache(maxsize=512)(_parse)


def _framing(status: int, length: int | None, *, chunked: bool, to_head: bool) -> Framing:
    if to_head or status < 200 or status in (204, 304):
        return Framing.NONE
    if chunked:
        return Framing.CHUNKED
    if length is None:
        return Framing.CLOSE
    return Framing.LENGTH if length else Framing.NONE


def _narrow_cookie(value: bytes, suffix: bytes) -> bytes:
    """Take away a Domain that would hand the cookie to other people's apps; it then belongs to this host alone."""
    for match in _COOKIE_DOMAIN.finditer(value):
        domain = match[1].lower()
        if domain == suffix or suffix.endswith(b"." + domain):
            return _COOKIE_DOMAIN.sub(b"", value)
    return value
