"""The response parser: where an answer ends is never in doubt, or it is not passed on."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.proto.body import CloseBody, LengthBody
from tunnel.proto.errors import BadBody, BadResponse
from tunnel.proto.forward import interim_head, response_head, switching_head
from tunnel.proto.response import Framing, ResponseHead, parse_response
from tunnel.proto.upgrade import is_answer


def parse(*lines: bytes, line: bytes = b"HTTP/1.1 200 OK", to_head: bool = False, suffix: bytes = b"") -> ResponseHead:
    raw = line + b"\r\n" + b"".join(x + b"\r\n" for x in lines) + b"\r\n"
    return parse_response(raw, to_head=to_head, cookie_suffix=suffix)


@pytest.mark.parametrize(
    ("lines", "framing", "reusable"),
    [
        ([b"Content-Length: 5"], Framing.LENGTH, True),
        ([b"Content-Length: 0"], Framing.NONE, True),
        ([b"Transfer-Encoding: Chunked"], Framing.CHUNKED, True),
        ([b"Content-Length: 5", b"Connection: close"], Framing.LENGTH, False),
        ([], Framing.CLOSE, False),
    ],
)
def test_framing_is_read(lines: list[bytes], framing: Framing, reusable: bool) -> None:  # noqa: FBT001
    response = parse(*lines)
    assert (response.framing, response.reusable) == (framing, reusable)


@pytest.mark.parametrize("line", [b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 103 Hints"])
def test_some_statuses_have_no_body_whatever_the_fields_say(line: bytes) -> None:
    assert parse(b"Content-Length: 5", line=line).framing is Framing.NONE
    assert parse(b"Transfer-Encoding: chunked", line=line).framing is Framing.NONE
    assert parse(line=line).framing is Framing.NONE


def test_an_answer_to_head_has_no_body_but_keeps_its_length() -> None:
    response = parse(b"Content-Length: 5", to_head=True)
    assert response.framing is Framing.NONE
    assert b"Content-Length: 5\r\n" in response_head(response, minor=1, close=False)


def test_204_goes_on_without_a_length() -> None:
    response = parse(b"Content-Length: 0", line=b"HTTP/1.1 204 No Content")
    assert response_head(response, minor=1, close=False) == b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
        [b"Content-Length: 5", b"Content-Length: 5"],
        [b"Content-Length: 5, 5"],
        [b"Content-Length: -5"],
        [b"Content-Length: +5"],
        [b"Transfer-Encoding: gzip, chunked"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
        [b"X: a\x00b"],
        [b"X: a\rSet-Cookie: b"],
        [b"X: a\nSet-Cookie: b"],
        [b" folded"],
        [b"X : y"],
        [b"no colon"],
    ],
)
def test_an_ambiguous_answer_is_bad(lines: list[bytes]) -> None:
    with pytest.raises(BadResponse):
        parse(*lines)


@pytest.mark.parametrize(
    "line",
    [b"HTTP/2 200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000", b"HTTP/1.1  200 OK", b"200 OK", b"HTTP/1.1 099 x", b""],
)
def test_a_bad_status_line_is_bad(line: bytes) -> None:
    with pytest.raises(BadResponse):
        parse(line=line)


@pytest.mark.parametrize("line", [b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.1 299 \xc3\xa9", b"HTTP/1.0 200 OK"])
def test_reason_phrases_are_not_our_business(line: bytes) -> None:
    assert parse(b"Content-Length: 1", line=line).status in (200, 299)


def test_http_1_0_answers_are_never_chunked_and_never_reused() -> None:
    with pytest.raises(BadResponse):
        parse(b"Transfer-Encoding: chunked", line=b"HTTP/1.0 200 OK")
    assert not parse(b"Content-Length: 1", line=b"HTTP/1.0 200 OK").reusable


def test_order_repeats_and_case_of_fields_are_kept_and_hop_by_hop_ones_are_not() -> None:
    response = parse(
        b"b: 1",
        b"Set-Cookie: x",
        b"Connection: keep-alive, X-Private",
        b"Keep-Alive: timeout=5",
        b"set-cookie: y",
        b"X-Private: 1",
        b"A_b:2",
        b"Content-Length: 3",
        b"Trailer: Grpc-Status",
    )
    assert response_head(response, minor=1, close=False) == (
        b"HTTP/1.1 200 OK\r\nb: 1\r\nSet-Cookie: x\r\nset-cookie: y\r\nA_b: 2\r\nTrailer: Grpc-Status\r\n"
        b"Content-Length: 3\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("cookie", "sent"),
    [
        (b"a=b; Domain=apps.example; Path=/", b"a=b; Path=/"),
        (b"a=b; domain=.apps.example", b"a=b"),
        (b"a=b;DOMAIN = example ;Secure", b"a=b;Secure"),
        (b"a=b; Domain=blog.apps.example", b"a=b; Domain=blog.apps.example"),
        (b"domain=apps.example; Path=/", b"domain=apps.example; Path=/"),
        (b"a=b; Domain=blog.apps.example; Domain=apps.example", b"a=b"),
    ],
)
def test_a_cookie_for_everybodys_domain_becomes_the_apps_own(cookie: bytes, sent: bytes) -> None:
    assert parse(b"Set-Cookie: " + cookie, suffix=b"apps.example").lines == b"Set-Cookie: " + sent + b"\r\n"


def test_an_http_1_0_client_gets_no_chunks() -> None:
    head = response_head(parse(b"Transfer-Encoding: chunked"), minor=0, close=True)
    assert head == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


def test_interim_and_switching_heads_are_rebuilt() -> None:
    hints = parse(b"Link: </a>; rel=preload", b"Content-Length: 9", line=b"HTTP/1.1 103 Early Hints")
    assert interim_head(hints) == b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"
    switch = parse(b"Upgrade: raw", b"Connection: Upgrade", b"X: y", line=b"HTTP/1.1 101 ")
    assert switching_head(switch) == (
        b"HTTP/1.1 101 Switching Protocols\r\nX: y\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"
    )


def test_a_websocket_101_must_prove_that_it_read_the_key() -> None:
    key = b"dGhlIHNhbXBsZSBub25jZQ=="
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())  # noqa: S324
    assert is_answer(b"websocket", b"WebSocket", key, accept)
    assert not is_answer(b"websocket", b"websocket", key, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOp=")
    assert not is_answer(b"websocket", b"websocket", b"", b"")
    assert not is_answer(b"websocket", b"raw", key, accept)
    assert is_answer(b"a, raw", b"raw", b"", b"")


def test_a_body_by_length_ends_where_it_says() -> None:
    body = LengthBody(5)
    assert body.feed(b"abc") == ([b"abc"], b"")
    with pytest.raises(BadBody):
        body.end()
    assert body.feed(b"defg") == ([b"de"], b"fg")
    assert body.done
    assert body.end() == b""


def test_a_body_by_close_is_chunked_for_those_who_know_chunks() -> None:
    assert b"".join(CloseBody(chunked=True).feed(b"hello")[0]) == b"5\r\nhello\r\n"
    assert CloseBody(chunked=True).end() == b"0\r\n\r\n"
    assert CloseBody(chunked=False).feed(b"hello") == ([b"hello"], b"")
    assert CloseBody(chunked=True).feed(b"") == ([b""], b"")


@given(st.binary(max_size=120))
def test_random_bytes_are_bad_and_nothing_else(data: bytes) -> None:
    with pytest.raises(BadResponse):
        parse_response(data + b"\r\n\r\n", to_head=False)
