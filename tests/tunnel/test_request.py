"""The request parser, one test a class of hazards: refused whole, or read as exactly one request."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.proto.errors import RequestRefused
from tunnel.proto.forward import forwarding_lines, request_head
from tunnel.proto.request import RequestHead, field_lines_start, parse_request

HOST = b"Host: blog.localhost\r\n"


def parse(*lines: bytes, line: bytes = b"GET / HTTP/1.1", host: bytes = HOST) -> RequestHead:
    return parse_request(line + b"\r\n" + host + b"".join(x + b"\r\n" for x in lines) + b"\r\n")


def refused(*lines: bytes, line: bytes = b"GET / HTTP/1.1", host: bytes = HOST) -> int:
    with pytest.raises(RequestRefused) as caught:
        parse(*lines, line=line, host=host)
    return caught.value.status


def forwarded(*lines: bytes, line: bytes = b"GET / HTTP/1.1") -> bytes:
    head = parse(*lines, line=line)
    said = forwarding_lines(head.fields, "192.0.2.7", "http", trusted=False)
    return request_head(head, said, expect_continue=False)


def names(head: bytes) -> list[bytes]:
    return [line.partition(b":")[0] for line in head.split(b"\r\n")[1:] if line]


# Framing


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"+5",
        b"-1",
        b"0x5",
        b"1_0",
        b"05",
        b"00",
        b"5 5",
        b"5,5",
        b"5, 5",
        b"5;",
        b"9223372036854775808",
        b"1" * 400,
        b"\xb2",
        b"5.0",
        b"1e3",
    ],
)
def test_a_content_length_that_is_not_one_plain_number_is_refused(value: bytes) -> None:
    assert refused(b"Content-Length: " + value, line=b"POST / HTTP/1.1") == 400


@pytest.mark.parametrize("second", [b"5", b"6"])
def test_two_content_lengths_are_refused_even_if_they_agree(second: bytes) -> None:
    assert refused(b"Content-Length: 5", b"content-length: " + second) == 400


@pytest.mark.parametrize(
    "value",
    [
        b",chunked",
        b"chunked,",
        b"xchunked",
        b"chunkedx",
        b"chunked;p=1",
        b"identity",
        b"gzip, chunked",
        b"chunked, chunked",
        b"gzip",
        b"",
        b'"chunked"',
        b"chunked\x0b",
        b"\x0cchunked",
        b"chunked\xa0",
        b"\xa0chunked",
        b"chunked\x00",
    ],
)
def test_a_transfer_encoding_other_than_chunked_is_refused(value: bytes) -> None:
    assert refused(b"Transfer-Encoding: " + value, line=b"POST / HTTP/1.1") == 400


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b"CHUNKED", b" chunked\t"])
def test_chunked_is_taken_in_any_case_and_written_anew(value: bytes) -> None:
    assert b"\r\nTransfer-Encoding: chunked\r\n" in forwarded(b"transfer-encoding:" + value, line=b"POST / HTTP/1.1")


def test_two_transfer_encodings_are_refused() -> None:
    assert refused(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") == 400


@pytest.mark.parametrize("order", [0, 1])
def test_content_length_beside_transfer_encoding_is_refused(order: int) -> None:
    lines = [b"Content-Length: 5", b"Transfer-Encoding: chunked"]
    assert refused(*(lines if order else reversed(lines)), line=b"POST / HTTP/1.1") == 400


def test_http_1_0_has_no_transfer_encoding() -> None:
    assert refused(b"Transfer-Encoding: chunked", line=b"POST / HTTP/1.0") == 400


# Fields


@pytest.mark.parametrize(
    "line",
    [
        b" folded",
        b"\tfolded",
        b"X: a\r\n b",
        b"X : a",
        b"X\t: a",
        b": a",
        b"no colon",
        b"",
        b"X: a\x00b",
        b"X: a\rb",
        b"X: a\nb",
        b"X: a\nContent-Length: 5",
        b"X: a\x7f",
        b"X: a\x1b[0m",
        b"X\xe9: a",
        b"X(y): a",
        b"X y: a",
        b'"X": a',
        b"X\x00: a",
        b"\x00X: a",
        b"X: a\n",
        b"\nX: a",
        b"X: a\r\r",
    ],
)
def test_a_malformed_header_line_is_refused(line: bytes) -> None:
    assert refused(b"A: 1", line, b"B: 2") == 400


def test_the_first_line_after_the_request_line_cannot_be_folded() -> None:
    assert refused(host=b" Host: blog.localhost\r\n") == 400


@pytest.mark.parametrize("name", [b"X_Forwarded_For", b"Transfer_Encoding", b"Content_Length", b"a_b"])
def test_names_with_an_underscore_never_reach_the_app(name: bytes) -> None:
    assert name not in forwarded(name + b": 1", line=b"POST / HTTP/1.1")


def test_a_client_does_not_choose_the_proxy_of_a_cgi_app() -> None:
    assert b"attacker" not in forwarded(b"Proxy: http://attacker/")


def test_order_case_and_repeats_of_headers_are_kept() -> None:
    head = forwarded(b"b: 2", b"A:1", b"Cookie: x", b"b:  3\t", b"cookie: y", b"X-Utf: \xc3\xa9")
    assert head.startswith(
        b"GET / HTTP/1.1\r\nHost: blog.localhost\r\n"
        b"b: 2\r\nA: 1\r\nCookie: x\r\nb: 3\r\ncookie: y\r\nX-Utf: \xc3\xa9\r\n"
    )


def test_too_many_fields_are_refused_with_431() -> None:
    assert refused(*[b"X: 1"] * 300) == 431


# Request line


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /", 400),
        (b"GET / HTTP/0.9", 505),
        (b"GET / HTTP/1.2", 505),
        (b"GET / HTTP/2.0", 505),
        (b"GET / HTTP/2", 505),
        (b"PRI * HTTP/2.0", 505),
        (b"GET / HTTP/1.10", 400),
        (b"GET / HTTP/1.1 ", 400),
        (b"GET / http/1.1", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET /  HTTP/1.1", 400),
        (b" GET / HTTP/1.1", 400),
        (b"GET\t/ HTTP/1.1", 400),
        (b"GET /\x01 HTTP/1.1", 400),
        (b"GET /\xc3\xa9 HTTP/1.1", 400),
        (b"GET /a b HTTP/1.1", 400),
        (b"GET /a\\b HTTP/1.1", 400),
        (b"GET /a#b HTTP/1.1", 400),
        (b"GET a HTTP/1.1", 400),
        (b"GET blog.localhost:80 HTTP/1.1", 400),
        (b"GET * HTTP/1.1", 400),
        (b"get / HTTP/1.1", 400),
        (b"G\xe9T / HTTP/1.1", 400),
        (b"G(T / HTTP/1.1", 400),
        (b"A" * 33 + b" / HTTP/1.1", 400),
        (b"CONNECT blog.localhost:443 HTTP/1.1", 405),
        (b"CONNECT / HTTP/1.1", 405),
        (b"TRACE / HTTP/1.1", 405),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1", 414),
        (b"GET http://u@blog.localhost/ HTTP/1.1", 400),
        (b"GET http://other.localhost/ HTTP/1.1", 400),
        (b"GET ftp://blog.localhost/ HTTP/1.1", 400),
        (b"GET http:///x HTTP/1.1", 400),
    ],
)
def test_a_bad_request_line_is_refused(line: bytes, status: int) -> None:
    assert refused(line=line) == status


@pytest.mark.parametrize(
    "target", [b"/%0d%0aX:y", b"//a//../b/.", b"/?a=\\&b={c}|^`", b"/;a=b", b"/" + b"a" * 30_000, b"/%zz", b"/\"<>'"]
)
def test_path_bytes_go_through_as_they_came(target: bytes) -> None:
    assert forwarded(line=b"GET " + target + b" HTTP/1.1").startswith(b"GET " + target + b" HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        (b"http://blog.localhost", b"/"),
        (b"HTTP://BLOG.localhost/a?b", b"/a?b"),
        (b"http://blog.localhost?q=1", b"/?q=1"),
        (b"https://blog.localhost/x", b"/x"),
    ],
)
def test_an_absolute_url_with_the_same_host_becomes_a_path(target: bytes, sent: bytes) -> None:
    assert parse(line=b"GET " + target + b" HTTP/1.1").target == sent


def test_the_asterisk_is_for_options() -> None:
    assert parse(line=b"OPTIONS * HTTP/1.1").target == b"*"


@pytest.mark.parametrize("method", [b"PROPFIND", b"M-SEARCH", b"PATCH", b"QUERY"])
def test_methods_nobody_listed_go_through(method: bytes) -> None:
    assert parse(line=method + b" / HTTP/1.1").method == method


# Host


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"", 400),
        (b"Host:\r\n", 400),
        (b"Host: a.localhost\r\nHost: b.localhost\r\n", 400),
        (b"Host: a.localhost\r\nhost: a.localhost\r\n", 400),
        (b"Host: a.localhost, b.localhost\r\n", 400),
        (b"Host: a@b.localhost\r\n", 400),
        (b"Host: a_b.localhost\r\n", 400),
        (b"Host: a..localhost\r\n", 400),
        (b"Host: .localhost\r\n", 400),
        (b"Host: -a.localhost\r\n", 400),
        (b"Host: a.localhost..\r\n", 400),
        (b"Host: a.localhost:\r\n", 400),
        (b"Host: a.localhost:0\r\n", 400),
        (b"Host: a.localhost:99999\r\n", 400),
        (b"Host: a.localhost:80:80\r\n", 400),
        (b"Host: a.localhost/x\r\n", 400),
        (b"Host: a%2elocalhost\r\n", 400),
        (b"Host: b\xfccher.localhost\r\n", 400),
        (b"Host: " + b"a." * 127 + b"localhost\r\n", 400),
        (b"Host: " + b"a" * 64 + b".localhost\r\n", 400),
        (b"Host: 127.0.0.1\r\n", 421),
        (b"Host: 127.0.0.1:8080\r\n", 421),
        (b"Host: 2130706433\r\n", 421),
        (b"Host: [::1]\r\n", 421),
        (b"Host: [::1]:8080\r\n", 421),
    ],
)
def test_a_host_that_is_not_one_host_name_is_refused(host: bytes, status: int) -> None:
    assert refused(host=host) == status


@pytest.mark.parametrize("host", [b"BLOG.LocalHost", b"blog.localhost.", b"Blog.Localhost.:8080"])
def test_host_is_normalised(host: bytes) -> None:
    head = parse(host=b"Host: " + host + b"\r\n")
    assert head.fields.authority.hostname == "blog.localhost"
    assert head.fields.lines.lower() == head.fields.lines.replace(b"Host", b"host")


# Hop by hop, and what we say about the client


def test_what_the_client_claims_about_itself_is_replaced() -> None:
    head = forwarded(
        b"X-Forwarded-For: 1.1.1.1",
        b"x-forwarded-proto: https",
        b"X-Forwarded-Host: evil",
        b"X-Forwarded-Anything: x",
        b"Forwarded: for=1.1.1.1",
        b"X-Real-Ip: 1.1.1.1",
        b"Via: 1.1 evil",
        b"X-Burrow-Secret: 1",
        b"Connection: X-Forwarded-For, X-Real-IP",
    )
    assert b"1.1.1.1" not in head
    assert b"evil" not in head
    assert b"X-Burrow" not in head
    assert b"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: blog.localhost\r\n" in head


def test_a_trusted_proxys_word_is_kept_and_its_address_appended() -> None:
    head = parse(b"X-Forwarded-For: 198.51.100.9", b"X-Forwarded-Proto: https")
    said = forwarding_lines(head.fields, "127.0.0.1", "http", trusted=True)
    assert b"X-Forwarded-For: 198.51.100.9, 127.0.0.1\r\nX-Forwarded-Proto: https\r\n" in said
    assert b"X-Real-IP: 198.51.100.9\r\n" in said


def test_hop_by_hop_fields_are_stripped() -> None:
    head = forwarded(
        b"Connection: keep-alive, X-Private",
        b"Keep-Alive: timeout=5",
        b"TE: gzip",
        b"Trailer: X",
        b"Proxy-Authorization: Basic x",
        b"Proxy-Connection: close",
        b"X-Private: 1",
        b"X-Public: 2",
    )
    assert [n for n in names(head) if not n.startswith((b"X-F", b"X-R", b"Forwarded"))] == [b"Host", b"X-Public"]


@pytest.mark.parametrize("name", [b"Host", b"Content-Length", b"transfer-encoding", b"Cookie", b"AUTHORIZATION"])
def test_connection_cannot_name_what_must_go_through(name: bytes) -> None:
    assert refused(b"Connection: close, " + name) == 400


@pytest.mark.parametrize("value", [b"close;", b"a b", b"(x)", b"\xe9"])
def test_a_malformed_connection_field_is_refused(value: bytes) -> None:
    assert refused(b"Connection: " + value) == 400


def test_te_trailers_is_passed_on_because_trailers_are() -> None:
    assert forwarded(b"TE: trailers").endswith(b"TE: trailers\r\n\r\n")


def test_other_expectations_than_100_continue_are_refused() -> None:
    assert refused(b"Expect: 200-maybe") == 417
    assert parse(b"Expect: 100-Continue").fields.expect_continue


# Upgrades


@pytest.mark.parametrize("token", [b"websocket", b"WebSocket", b"raw-bytes", b"docker/1", b"a, b"])
def test_any_upgrade_token_passes(token: bytes) -> None:
    assert forwarded(b"Connection: Upgrade", b"Upgrade: " + token).count(b"Upgrade: " + token) == 1


@pytest.mark.parametrize("token", [b"h2c", b"H2C", b"HTTP/2.0", b"http/2", b"h2", b"TLS/1.0"])
def test_another_http_is_never_asked_for(token: bytes) -> None:
    head = forwarded(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + token, b"HTTP2-Settings: AAMA")
    assert b"Upgrade" not in head
    assert b"HTTP2" not in head


def test_h2c_is_taken_out_of_a_list() -> None:
    assert parse(b"Connection: upgrade", b"Upgrade: h2c, websocket").fields.upgrade == b"websocket"


def test_an_upgrade_that_connection_does_not_name_is_none() -> None:
    assert parse(b"Upgrade: websocket").fields.upgrade == b""


def test_a_request_with_a_body_does_not_upgrade() -> None:
    assert parse(b"Connection: upgrade", b"Upgrade: x", b"Content-Length: 3").fields.upgrade == b""


# The memory of field lines


def test_known_field_lines_read_the_same() -> None:
    raw = b"GET /1 HTTP/1.1\r\n" + HOST + b"A: b\r\n\r\n"
    first = parse_request(raw)
    again = parse_request(raw.replace(b"/1 ", b"/2 "), (raw[field_lines_start(raw) :], first.fields))
    assert again.target == b"/2"
    assert again.fields is first.fields


def test_known_field_lines_must_be_all_of_them() -> None:
    known = (b"\r\n", parse().fields)
    assert refused(host=b"") == 400
    with pytest.raises(RequestRefused):
        parse_request(b"GET / HTTP/1.1\r\nX\x00: 1\r\n\r\n", known)


# Against another parser


field = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"Content-Length: 3", b"Transfer-Encoding: chunked", b"X: y", b"Connection: close", b" x", HOST[:-2]]
    ),
    st.builds(lambda n, v: n + b": " + v, st.from_regex(rb"\A[A-Za-z-]{1,8}\Z"), st.binary(max_size=8)),
)


@given(st.lists(field, max_size=5), st.sampled_from([b"GET", b"POST", b"get", b"G T"]), st.binary(max_size=6))
def test_whatever_is_let_through_h11_reads_the_same(lines: list[bytes], method: bytes, path: bytes) -> None:
    raw = method + b" /" + path + b" HTTP/1.1\r\n" + HOST + b"".join(x + b"\r\n" for x in lines) + b"\r\n"
    try:
        head = parse_request(raw[: raw.find(b"\r\n\r\n") + 4])
    except RequestRefused:
        return
    said = forwarding_lines(head.fields, "192.0.2.7", "http", trusted=False)
    sent = request_head(head, said, expect_continue=False)
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(sent)
    event = parser.next_event()
    assert isinstance(event, h11.Request)
    assert event.method == head.method
    assert event.target == head.target
    framing = [(n, v) for n, v in event.headers if n in (b"content-length", b"transfer-encoding")]
    assert len(framing) <= 1
    assert head.fields.chunked == (framing == [(b"transfer-encoding", b"chunked")])
    assert parser.trailing_data[0] == b""


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(RequestRefused):
        parse_request(data + b"\r\n\r\n")
