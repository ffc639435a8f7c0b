"""The grammar of header fields, and which names mean what to a proxy.

A block of fields is either matched whole, every byte of it, or refused: no folding, no bare CR or LF, no control
characters, no space before the colon, no name outside the token alphabet (RFC 9110 5.1, RFC 9112 5).
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
VALUE = rb"[\t\x20-\x7e\x80-\xff]"

# Anchored at a line's start by the look-behind; so as many matches as line feeds means that every line matched whole.
_FIELD = re.compile(rb"(?<=\n)(" + TOKEN + rb"++):(" + VALUE + rb"*+)\r\n")
_CONTENT_LENGTH = re.compile(rb"0|[1-9][0-9]{0,17}")
_TOKEN_LIST = re.compile(rb"[\t ,]*" + TOKEN + rb"+(?:[\t ]*,[\t ]*(?:" + TOKEN + rb"+)?)*[\t ]*")

OWS = b" \t"

# Never taken from the client: the app must be able to believe what we say under these names.
FORWARDING = frozenset({b"forwarded", b"x-real-ip", b"via"})
FORWARDING_PREFIXES = (b"x-forwarded-", b"x-burrow-")

HOP_BY_HOP = frozenset(
    {
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"http2-settings",
        b"proxy",  # no header of HTTP at all, but CGI makes HTTP_PROXY of it: clients would choose the app's proxy
    }
)

# Naming one of these in Connection asks us to hide from the app what the app decides by.
UNLISTABLE = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"cookie", b"authorization", b"content-type", b"set-cookie"}
)

# A trailer is merged into the headers by many a server, so it must not be able to say what a header decides.
UNSAFE_TRAILERS = (
    UNLISTABLE
    | FORWARDING
    | HOP_BY_HOP
    | {b"connection", b"te", b"trailer", b"upgrade", b"expect", b"content-encoding"}
)


class Name(Enum):
    """What a field means to a proxy."""

    PASS = auto()
    DROP = auto()
    FORWARDING = auto()
    HOST = auto()
    CONNECTION = auto()
    CONTENT_LENGTH = auto()
    TRANSFER_ENCODING = auto()
    UPGRADE = auto()
    EXPECT = auto()
    TE = auto()
    TRAILER = auto()
    ACCEPT = auto()
    USER_AGENT = auto()
    WEBSOCKET_KEY = auto()
    WEBSOCKET_ACCEPT = auto()
    SET_COOKIE = auto()


_SPECIAL = {
    b"host": Name.HOST,
    b"connection": Name.CONNECTION,
    b"content-length": Name.CONTENT_LENGTH,
    b"transfer-encoding": Name.TRANSFER_ENCODING,
    b"upgrade": Name.UPGRADE,
    b"expect": Name.EXPECT,
    b"te": Name.TE,
    b"trailer": Name.TRAILER,
    b"accept": Name.ACCEPT,
    b"user-agent": Name.USER_AGENT,
    b"sec-websocket-key": Name.WEBSOCKET_KEY,
    b"sec-websocket-accept": Name.WEBSOCKET_ACCEPT,
    b"set-cookie": Name.SET_COOKIE,
}


@lru_cache(maxsize=4096)
def name_of_request(name: bytes) -> Name:
    """What a request's field means. Names with an underscore are dropped: CGI and WSGI make `-` of it."""
    lower = name.lower()
    if b"_" in lower or lower in HOP_BY_HOP:
        return Name.DROP
    if lower in FORWARDING or lower.startswith(FORWARDING_PREFIXES):
        return Name.FORWARDING
    return _SPECIAL.get(lower, Name.PASS)


@lru_cache(maxsize=4096)
def name_of_response(name: bytes) -> Name:
    """What a response's field means."""
    lower = name.lower()
    if lower in HOP_BY_HOP or lower.startswith(b"x-burrow-"):
        return Name.DROP
    return _SPECIAL.get(lower, Name.PASS)


@lru_cache(maxsize=4096)
def is_safe_trailer(name: bytes) -> bool:
    """Whether a trailer of this name may go on."""
    lower = name.lower()
    return b"_" not in lower and lower not in UNSAFE_TRAILERS and not lower.startswith(FORWARDING_PREFIXES)


def split_fields(head: bytes, start: int) -> list[tuple[bytes, bytes]] | None:
    """Names and values (blanks around them included) of the lines from `start` to the empty line that ends `head`.

    None if any line is not exactly a field. `head` ends in CRLF CRLF and `start` is just after a line feed.
    """
    end = len(head) - 2
    fields = _FIELD.findall(head, start, end)
    return fields if len(fields) == head.count(b"\n", start, end) else None


def content_length(value: bytes) -> int | None:
    """The value of Content-Length, or None if it is not plain digits. Python's int() takes far more than that."""
    return int(value) if _CONTENT_LENGTH.fullmatch(value) else None


def tokens(value: bytes) -> list[bytes] | None:
    """A comma-separated list of tokens in lower case, or None if it is not one."""
    if not _TOKEN_LIST.fullmatch(value):
        return None
    return [t for t in (part.strip(OWS) for part in value.lower().split(b",")) if t]
