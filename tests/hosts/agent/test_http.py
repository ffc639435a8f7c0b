"""The API's HTTP server: whole requests get answers, anything else gets a 400 or a closed connection, and nothing
hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest

from hosts.agent import http
from hosts.agent.http import Answer, ApiError, ApiServer, Request


async def echo(request: Request) -> Answer:
    if request.segments == ("fail",):
        raise ApiError(HTTPStatus.CONFLICT, "machine:busy", "in flight")
    if request.segments == ("bug",):
        raise RuntimeError("a bug")
    body = await request.body()
    return Answer(
        f'"{request.method} {"|".join(request.segments)} {sorted(request.query.items())} {body.decode()}"'.encode()
    )


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncIterator[Path]:
    server = ApiServer(tmp_path / "s", echo)
    await server.start()
    yield tmp_path / "s"
    await server.close()


async def say(socket: Path, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.005)
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()


HEAD = b"HTTP/1.1\r\nHost: burrow-host\r\nConnection: close\r\n"


async def test_a_request_is_answered_and_the_connection_closed(socket: Path) -> None:
    answer = await say(socket, b"GET /v1/a%20b?after=3&x= " + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close\r\n" in answer
    assert answer.endswith(b"\"GET v1|a b [('after', '3'), ('x', '')] \"")


@pytest.mark.parametrize(
    "body",
    [
        [b"Content-Length: 5\r\n\r\nhello"],
        [b"Content-Length: 5\r\n\r\n", b"he", b"llo"],
        [b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nhe\r\n3\r\nllo\r\n", b"0\r\n\r\n"],
    ],
)
async def test_a_body_may_come_in_any_framing_and_any_pieces(socket: Path, body: list[bytes]) -> None:
    assert (await say(socket, b"PUT /x " + HEAD, *body)).endswith(b'"PUT x [] hello"')


async def test_a_request_byte_by_byte_is_a_request(socket: Path) -> None:
    raw = b"PUT /x " + HEAD + b"Content-Length: 2\r\n\r\nhi"
    reader, writer = await asyncio.open_unix_connection(socket)
    for byte in raw:
        writer.write(bytes([byte]))
        await writer.drain()
    assert (await reader.read()).endswith(b'"PUT x [] hi"')
    writer.close()


async def test_expect_100_continue_is_answered_before_the_body(socket: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"PUT /x " + HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hi")
    assert (await reader.read()).endswith(b'"PUT x [] hi"')
    writer.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\r\nX: b\r\n\r\n",
        b"GET /%ff HTTP/1.1\r\n\r\n",
        b"GET /?x=1&y HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(200)) + b"\r\n",
    ],
)
async def test_what_is_not_one_plain_request_gets_400(socket: Path, raw: bytes) -> None:
    answer = await say(socket, raw)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"wire:bad_message"' in answer


async def test_a_json_body_over_the_limit_gets_413(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = http.MAX_JSON_BYTES + 1
    answer = await say(socket, b"PUT /x " + HEAD + b"Content-Length: %d\r\n\r\n" % size, b"a" * size)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_an_error_is_its_status_and_its_code(socket: Path) -> None:
    answer = await say(socket, b"GET /fail " + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 409 Conflict")
    assert answer.endswith(b'{"code":"machine:busy","message":"in flight"}')


async def test_a_bug_is_a_500_and_the_server_goes_on(socket: Path) -> None:
    assert (await say(socket, b"GET /bug " + HEAD + b"\r\n")).startswith(b"HTTP/1.1 500 ")
    assert (await say(socket, b"GET /x " + HEAD + b"\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_caller_that_leaves_half_way_is_dropped(socket: Path) -> None:
    _, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"PUT /x " + HEAD + b"Content-Length: 100\r\n\r\nsome")
    writer.close()
    assert (await say(socket, b"GET /x " + HEAD + b"\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_silent_caller_is_dropped_after_the_head_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "HEAD_TIMEOUT_S", 0.05)
    server = ApiServer(tmp_path / "s", echo)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
    writer.write(b"GET / HT")
    async with asyncio.timeout(2):
        assert await reader.read() == b""
    writer.close()
    await server.close()


async def test_the_socket_is_for_root_only_and_replaces_a_left_over_one(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = ApiServer(path, echo)
    await first.start()
    second = ApiServer(path, echo)
    await second.start()
    assert path.stat().st_mode & 0o777 == 0o600
    assert (await say(path, b"GET /x " + HEAD + b"\r\n")).startswith(b"HTTP/1.1 200 ")
    await second.close()
    await first.close()
