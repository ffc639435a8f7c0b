"""Requests and answers through a whole tunnel: what goes in comes out, and what ends, ends where it should."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.tunnel.backend import Visit
from tests.tunnel.world import World, until

GET = b"GET %b HTTP/1.1\r\nHost: blog.localhost\r\n\r\n"
POST = b"POST %b HTTP/1.1\r\nHost: blog.localhost\r\n"


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One answer with a Content-Length: head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = [int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")]
    return head, await reader.readexactly(length)


async def test_a_request_reaches_the_app_and_its_answer_comes_back(tunnel: World) -> None:
    answer = await tunnel.get("/a%20b/../c?x=%0d%0a&y=\\")
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    (seen,) = tunnel.backend.requests
    assert seen.method == b"GET"
    assert seen.target == b"/a%20b/../c?x=%0d%0a&y=\\"
    assert seen.values(b"host") == [b"blog.localhost"]
    assert seen.values(b"x-forwarded-for") == [b"127.0.0.1"]


async def test_a_connection_is_kept_and_pipes_are_used_again(tunnel: World) -> None:
    reader, writer = await tunnel.open()
    for _ in range(5):
        writer.write(GET % b"/")
        assert (await read_answer(reader))[1] == b"hello"
    writer.close()
    assert len(tunnel.backend.requests) == 5
    assert {seen.connection for seen in tunnel.backend.requests} == {0}
    assert tunnel.agent.opens == ["m1"]


async def test_a_request_with_a_body_takes_a_pipe_of_its_own(tunnel: World) -> None:
    reader, writer = await tunnel.open()
    for request in (GET % b"/", POST % b"/" + b"Content-Length: 2\r\n\r\nab", GET % b"/"):
        writer.write(request)
        await read_answer(reader)
    writer.close()
    assert [seen.connection for seen in tunnel.backend.requests][0:2] == [0, 1]
    assert tunnel.backend.requests[1].body == b"ab"


async def test_pipelined_requests_are_answered_in_order(tunnel: World) -> None:
    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.05)
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")

    tunnel.backend.replies[b"/slow"] = slow
    reader, writer = await tunnel.open()
    writer.write(GET % b"/slow" + POST % b"/" + b"Content-Length: 3\r\n\r\nabc" + GET % b"/" + GET % b"/slow")
    bodies = [(await read_answer(reader))[1] for _ in range(4)]
    writer.close()
    assert bodies == [b"slow", b"hello", b"hello", b"slow"]


async def test_an_unknown_host_gets_404_and_wakes_nothing(tunnel: World) -> None:
    answer = await tunnel.get(host="other.localhost")
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html")
    assert b"Cache-Control: no-store" in answer
    assert b"other.localhost" in answer
    assert tunnel.agent.opens == []
    assert tunnel.agent.activities == []


async def test_json_is_answered_to_those_who_ask_for_it(tunnel: World) -> None:
    answer = await tunnel.get("/", "Accept: application/json", host="other.localhost")
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert body == {"error": {"code": "route:unknown", "phase": "", "message": "There is no app at this address."}}


async def test_a_port_the_edge_does_not_listen_on_is_misdirected(tunnel: World) -> None:
    assert (await tunnel.get(host="blog.localhost:1")).startswith(b"HTTP/1.1 421 ")
    assert (await tunnel.get(host=f"BLOG.localhost.:{tunnel.port}")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "raw",
    [
        b"POST / HTTP/1.1\r\nHost: blog.localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: blog.localhost\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\nHost: blog.localhost\n\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
@pytest.mark.parametrize("step", [1, 10_000])
async def test_a_refused_request_closes_and_the_app_sees_nothing(tunnel: World, raw: bytes, step: int) -> None:
    reader, writer = await tunnel.open()
    for i in range(0, len(raw), step):
        writer.write(raw[i : i + step])
        await asyncio.sleep(0)
    if step > 1:
        writer.write(GET % b"/smuggled")
    answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 "))
    assert answer.count(b"Connection: close") == 1
    assert tunnel.backend.requests == []


async def test_long_heads_are_refused_and_say_which_side_refuses(tunnel: World) -> None:
    assert (await tunnel.get("/" + "a" * 70_000)).startswith(b"HTTP/1.1 414 ")
    answer = await tunnel.get("/", *["X: " + "a" * 1000] * 70)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"The edge takes" in answer


async def test_chunks_go_both_ways_with_their_boundaries_and_trailers(tunnel: World) -> None:
    async def echo(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
            b"3;ext\r\nabc\r\n00002\r\nde\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n"
        )

    tunnel.backend.replies[b"/echo"] = echo
    answer = await tunnel.say(
        POST % b"/echo" + b"Connection: close\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n"
        b"5;x\r\nhello\r\n1\r\n!\r\n0\r\nX-Check: 2\r\nHost: evil\r\n\r\n"
    )
    (seen,) = tunnel.backend.requests
    assert seen.body == b"hello!"
    assert seen.trailers == [(b"x-check", b"2")]
    assert answer.endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n")


async def test_a_broken_chunk_cuts_the_request_and_answers_400(tunnel: World) -> None:
    answer = await tunnel.say(POST % b"/" + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n" + GET % b"/x")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    await until(lambda: tunnel.backend.open_connections == 0)
    assert [seen.target for seen in tunnel.backend.requests if seen.target != b"/"] == []


async def test_events_are_not_buffered(tunnel: World) -> None:
    go_on = asyncio.Event()

    async def events(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            await visit.send(b"9\r\ndata: 1\n\n\r\n")
            await go_on.wait()
            go_on.clear()
        await visit.send(b"0\r\n\r\n")

    tunnel.backend.replies[b"/events"] = events
    reader, writer = await tunnel.open()
    writer.write(GET % b"/events")
    await reader.readuntil(b"\r\n\r\n")
    for _ in range(3):
        async with asyncio.timeout(2):
            assert await reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: 1\n\n\r\n"
        go_on.set()
    assert await reader.readuntil(b"0\r\n\r\n")
    writer.close()


async def test_head_204_and_304_have_no_body(tunnel: World) -> None:
    async def bare(visit: Visit) -> None:
        await visit.read_body()
        status = visit.seen.target[1:]
        await visit.send(b"HTTP/1.1 %b X\r\nContent-Length: 5\r\n\r\n" % status)

    for path in (b"/204", b"/304", b"/200"):
        tunnel.backend.replies[path] = bare
    reader, writer = await tunnel.open()
    writer.write(GET % b"/204")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 204 X\r\n\r\n"
    writer.write(GET % b"/304")
    assert b"Content-Length: 5" in await reader.readuntil(b"\r\n\r\n")
    writer.write((GET % b"/200").replace(b"GET", b"HEAD"))
    assert b"Content-Length: 5" in await reader.readuntil(b"\r\n\r\n")
    writer.write(GET % b"/")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()


async def test_a_body_in_answer_to_head_poisons_its_pipe_and_nobody_elses(tunnel: World) -> None:
    async def wrong(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nWRONG")

    tunnel.backend.replies[b"/wrong"] = wrong
    reader, writer = await tunnel.open()
    writer.write((GET % b"/wrong").replace(b"GET", b"HEAD"))
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.05)
    writer.write(GET % b"/")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()
    assert len({seen.connection for seen in tunnel.backend.requests}) == 2


async def test_interim_answers_are_relayed(tunnel: World) -> None:
    async def hints(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    tunnel.backend.replies[b"/hints"] = hints
    answer = await tunnel.get("/hints")
    assert answer.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 103 x\r\n\r\n" * 100,
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000,
        b"HTTP/1.1 200 OK\r\nCont",
        b"",
    ],
)
async def test_a_bad_answer_is_a_clean_502(tunnel: World, bad: bytes) -> None:
    async def lie(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(bad)
        visit.writer.close()

    tunnel.backend.replies[b"/bad"] = lie
    reader, writer = await tunnel.open()
    writer.write(GET % b"/bad")
    head = b"HTTP/1.1 103"
    while head.startswith(b"HTTP/1.1 103"):
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 ")
    (length,) = [int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length")]
    await reader.readexactly(length)
    writer.write(GET % b"/")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxx\r\n",
    ],
)
async def test_a_truncated_answer_never_looks_whole(tunnel: World, cut: bytes) -> None:
    async def stop(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(cut)
        visit.writer.close()

    tunnel.backend.replies[b"/cut"] = stop
    answer = await tunnel.say(GET % b"/cut")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not answer.endswith(b"0\r\n\r\n")


async def test_a_truncated_answer_never_looks_whole_to_an_http_1_0_client(tunnel: World) -> None:
    async def stop(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        visit.writer.close()

    tunnel.backend.replies[b"/cut"] = stop
    with pytest.raises(ConnectionResetError):
        await tunnel.say(b"GET /cut HTTP/1.0\r\nHost: blog.localhost\r\n\r\n")


async def test_an_answer_that_ends_with_its_connection_is_chunked_on(tunnel: World) -> None:
    async def old(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.0 200 OK\r\n\r\nhello")
        visit.writer.close()

    tunnel.backend.replies[b"/old"] = old
    answer = await tunnel.get("/old")
    assert answer.endswith(b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n")


async def test_an_http_1_0_client_gets_plain_bytes_and_a_close(tunnel: World) -> None:
    async def chunked(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")

    tunnel.backend.replies[b"/c"] = chunked
    answer = await tunnel.say(b"GET /c HTTP/1.0\r\nHost: blog.localhost\r\nConnection: keep-alive\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"


async def test_an_answer_before_the_end_of_the_body_gets_through_and_closes(tunnel: World) -> None:
    async def too_large(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
        visit.writer.close()

    tunnel.backend.replies[b"/up"] = too_large
    reader, writer = await tunnel.open()
    writer.write(POST % b"/up" + b"Content-Length: 50000000\r\n\r\n")
    for _ in range(20):
        writer.write(b"x" * 65536)
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 Too Large\r\n")
    assert b"Connection: close\r\n" in answer
    assert answer.endswith(b"too large")
    assert len(tunnel.backend.requests) == 1


async def test_uploads_are_held_back_by_an_app_that_does_not_read(tunnel: World) -> None:
    go_on = asyncio.Event()

    async def lazy(visit: Visit) -> None:
        await go_on.wait()
        body = await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n%08d" % len(body))

    tunnel.backend.replies[b"/up"] = lazy
    size = 64 * 1024 * 1024
    reader, writer = await tunnel.open()
    writer.write(POST % b"/up" + b"Content-Length: %d\r\n\r\n" % size)
    sent = 0

    async def upload() -> None:
        nonlocal sent
        while sent < size:
            writer.write(b"x" * 262_144)
            sent += 262_144
            await writer.drain()

    uploading = asyncio.get_running_loop().create_task(upload())
    await asyncio.sleep(0.5)
    assert sent < size // 2
    go_on.set()
    async with asyncio.timeout(30):
        await uploading
        assert (await read_answer(reader))[1] == b"%08d" % size
    writer.close()


async def test_downloads_are_held_back_by_a_client_that_does_not_read(tunnel: World) -> None:
    size = 64 * 1024 * 1024
    sent = 0

    async def large(visit: Visit) -> None:
        nonlocal sent
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await visit.send(b"x" * 262_144)
            sent += 262_144

    tunnel.backend.replies[b"/large"] = large
    reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.port, limit=65536)
    writer.write(GET % b"/large")
    await asyncio.sleep(0.5)
    assert sent < size // 2
    _, body = await read_answer(reader)
    assert len(body) == size
    writer.close()


async def test_expect_100_is_answered_by_the_app_when_it_runs(tunnel: World) -> None:
    reader, writer = await tunnel.open()
    writer.write(POST % b"/" + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hello")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()
    assert tunnel.backend.requests[0].values(b"expect") == [b"100-continue"]


async def test_an_early_no_to_expect_100_is_relayed(tunnel: World) -> None:
    async def no(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")

    tunnel.backend.replies[b"/no"] = no
    answer = await tunnel.say(POST % b"/no" + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.endswith(b"no")


async def test_a_kept_pipe_that_died_is_retried_once_on_a_fresh_one(tunnel: World) -> None:
    async def once(visit: Visit) -> None:
        await visit.read_body()
        if visit.seen.connection == 0 and len(tunnel.backend.requests) > 1:
            visit.writer.close()
            return
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nonce")

    tunnel.backend.replies[b"/once"] = once
    reader, writer = await tunnel.open()
    for _ in range(2):
        writer.write(GET % b"/once")
        assert (await read_answer(reader))[1] == b"once"
    writer.close()
    assert [seen.connection for seen in tunnel.backend.requests] == [0, 0, 1]


async def test_a_fresh_pipe_that_died_is_not_retried(tunnel: World) -> None:
    async def die(visit: Visit) -> None:
        visit.writer.close()

    tunnel.backend.replies[b"/die"] = die
    assert (await tunnel.get("/die")).startswith(b"HTTP/1.1 502 ")
    assert len(tunnel.backend.requests) == 1


async def test_a_client_that_goes_away_takes_its_request_with_it(
    tunnel: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnel.edge.listener.HALF_CLOSED_S", 0.1)

    async def forever(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await visit.reader.read(1)

    tunnel.backend.replies[b"/forever"] = forever
    reader, writer = await tunnel.open()
    writer.write(GET % b"/forever")
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    await until(lambda: tunnel.edge.core.activity.in_flight("m1") == 0, 15.0)
    await until(lambda: tunnel.backend.open_connections == 0)
    await until(lambda: tunnel.agent.activities[-1] == ("m1", 0))


async def test_a_client_that_shut_its_sending_side_still_gets_its_answer(tunnel: World) -> None:
    reader, writer = await tunnel.open()
    writer.write(GET % b"/" + GET % b"/")
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    assert answer.count(b"hello") == 2


async def test_every_request_is_one_line_in_the_access_log(tunnel: World) -> None:
    await tunnel.get("/%1b[31m?a=\\", "User-Agent: \xe9vil")
    await tunnel.get(host="other.localhost")
    tunnel.edge.core.access.flush()
    await until(lambda: tunnel.log_file.read_bytes().count(b"\n") == 2)
    first, second = (json.loads(line) for line in tunnel.log_file.read_bytes().splitlines())
    assert (first["app"], first["status"], first["target"], first["pipe"]) == ("blog", 200, "/%1b[31m?a=\\", "fresh")
    assert first["bytes_out"] == 5
    assert first["total_ms"] >= first["first_byte_ms"] > 0
    assert (second["status"], second["code"], second["hostname"]) == (404, "route:unknown", "other.localhost")
    assert tunnel.log_file.read_bytes().isascii()
