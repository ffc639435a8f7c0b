"""Hosts and edges finding each other again: restarts, lost links, wrong tokens, broken connections."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.tunnel.backend import Visit
from tests.tunnel.test_exchange import GET, read_answer
from tests.tunnel.world import TOKEN, World, until
from tunnel.wire import (
    OPENED_OK,
    HostHello,
    Kind,
    Need,
    Open,
    Ping,
    Pong,
    Route,
    ToMachine,
    decode_message,
    decode_open,
    decode_welcome,
)


async def dial(tunnel: World, hello: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.edge.link_port)
    writer.write(hello)
    async with asyncio.timeout(5):
        line = await reader.readline()
    return reader, writer, line


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_wrong_token_is_refused(tunnel: World, kind: Kind) -> None:
    reader, writer, line = await dial(tunnel, HostHello(kind, "h1", "x" * 32, "s").encode())
    assert json.loads(line)["code"] == "tunnel:token"
    assert await reader.read() == b""
    writer.close()
    assert tunnel.edge.linked_hosts() == ["h1"]


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n",
        b'{"v":2,"hello":"link","host":"h","token":"t","session":"s"}\n',
        b'{"v":1,"hello":"link","host":"h","token":"t"}\n',
        b'{"v":1,"hello":"link","hello":"data","host":"h","token":"t","session":"s"}\n',
        b"[1]\n",
        b"x" * 20_000,
    ],
)
async def test_a_malformed_hello_is_refused(tunnel: World, line: bytes) -> None:
    reader, writer, answer = await dial(tunnel, line)
    assert json.loads(answer)["code"] == "tunnel:malformed"
    assert await reader.read() == b""
    writer.close()


async def test_a_data_connection_of_another_session_is_refused(tunnel: World) -> None:
    _, writer, line = await dial(tunnel, HostHello(Kind.DATA, "h1", TOKEN, "other").encode())
    assert json.loads(line)["code"] == "tunnel:session"
    writer.close()


async def test_a_data_connection_of_a_host_without_a_link_is_refused(tunnel: World) -> None:
    _, writer, line = await dial(tunnel, HostHello(Kind.DATA, "h2", TOKEN, "s").encode())
    assert json.loads(line)["code"] == "tunnel:session"
    writer.close()


async def test_pings_are_answered_and_unknown_messages_ignored(tunnel: World) -> None:
    reader, writer, line = await dial(tunnel, HostHello(Kind.LINK, "h2", TOKEN, "s").encode())
    assert decode_welcome(line).edge == "edge-t"
    assert isinstance(decode_message(await reader.readline()), Need)
    writer.write(b'{"m":"news","x":1}\n' + Ping(7).encode())
    assert decode_message(await reader.readline()) == Pong(7)
    writer.close()


async def test_the_newest_link_of_a_host_wins(tunnel: World) -> None:
    _, writer, line = await dial(tunnel, HostHello(Kind.LINK, "h1", TOKEN, "new").encode())
    decode_welcome(line)
    await until(lambda: tunnel.agent.lost == 1)
    writer.close()
    await until(lambda: tunnel.edge.linked_hosts() == [])
    await until(lambda: tunnel.edge.linked_hosts() == ["h1"])
    assert (await tunnel.get()).endswith(b"hello")


async def test_a_restarted_edge_serves_from_its_table_on_disk(tunnel: World) -> None:
    http, link = tunnel.edge.http_port, tunnel.edge.link_port
    await tunnel.edge.stop()
    assert tunnel.agent.lost == 1
    await tunnel.start_edge(http_port=http, link_port=link)
    assert tunnel.edge.core.router.generation == 1
    assert (await tunnel.get()).endswith(b"hello")


async def test_a_request_waits_for_a_host_that_is_coming_back(tunnel: World) -> None:
    await tunnel.stop_dialer()
    await until(lambda: not tunnel.edge.linked_hosts())
    asking = asyncio.get_running_loop().create_task(tunnel.get())
    await asyncio.sleep(0.3)
    assert not asking.done()
    await tunnel.start_dialer()
    assert (await asking).endswith(b"hello")


async def test_a_host_that_is_long_away_is_503_at_once(tunnel: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunnel.edge.hosts.HOST_AWAY_S", 0.05)
    await tunnel.stop_dialer()
    await until(lambda: not tunnel.edge.linked_hosts())
    await asyncio.sleep(0.1)
    answer = await tunnel.get()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"tunnel:no_host" in answer
    assert b"Retry-After" in answer


async def test_what_is_in_flight_survives_a_lost_link_and_is_said_again(tunnel: World) -> None:
    go_on = asyncio.Event()

    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        await go_on.wait()
        await visit.send(b"-last")

    tunnel.backend.replies[b"/slow"] = slow
    reader, writer = await tunnel.open()
    writer.write(GET % b"/slow")
    await reader.readuntil(b"first")
    tunnel.agent.activities.clear()
    host = tunnel.edge._hosts.get("h1")
    assert host.link is not None
    host.link.close()
    await until(lambda: tunnel.agent.lost == 1)
    await until(lambda: tunnel.agent.activities == [("m1", 1)])
    go_on.set()
    assert await reader.readexactly(5) == b"-last"
    writer.write(GET % b"/")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()


async def test_a_data_connection_that_dies_at_open_is_replaced(tunnel: World) -> None:
    await tunnel.publish(2, Route("raw.localhost", "m2", "h2", "raw"))
    _, link, _ = await dial(tunnel, HostHello(Kind.LINK, "h2", TOKEN, "s").encode())
    asking = asyncio.get_running_loop().create_task(tunnel.get(host="raw.localhost"))
    for answers in (False, True):
        reader, writer, _ = await dial(tunnel, HostHello(Kind.DATA, "h2", TOKEN, "s").encode())
        wanted = decode_open(await reader.readline(), host="h2")
        assert wanted.to == ToMachine("m2", may_wake=True)
        if answers:
            writer.write(OPENED_OK)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET / HTTP/1.1\r\nHost: raw.localhost\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            assert (await asking).endswith(b"ok")
        writer.close()
    link.close()


async def test_a_refused_open_is_one_line_and_a_close(tunnel: World) -> None:
    host = tunnel.edge._hosts.get("h1")
    pipe = await host.take()
    lines: list[bytes] = []

    class Owner:
        lost = False

        def pipe_data(self, data: bytes) -> None:
            lines.append(data)

        def pipe_eof(self) -> None:
            self.lost = True

        def pipe_lost(self) -> None:
            self.lost = True

        def pipe_full(self, *, full: bool) -> None: ...

    owner = pipe.owner = Owner()
    pipe.transport.write(Open(ToMachine("m9", may_wake=True), "r").encode())
    await until(lambda: owner.lost)
    pipe.close()
    assert json.loads(lines[0])["code"] == "machine:unknown"


async def test_a_burst_larger_than_the_pool_is_served(tunnel: World) -> None:
    answers = await asyncio.gather(*(tunnel.get(f"/{i}", method="DELETE") for i in range(120)))
    assert all(a.endswith(b"hello") for a in answers)
    host = tunnel.edge._hosts.get("h1")
    await until(lambda: 8 <= len(host._idle) <= 32)


async def test_draining_finishes_what_is_in_flight_and_takes_nothing_new(tunnel: World) -> None:
    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.3)
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")

    tunnel.backend.replies[b"/slow"] = slow
    idle_reader, idle_writer = await tunnel.open()
    reader, writer = await tunnel.open()
    writer.write(GET % b"/slow")
    await until(lambda: len(tunnel.backend.requests) == 1)
    stopping = asyncio.get_running_loop().create_task(tunnel.edge.stop())
    assert await idle_reader.read() == b""
    with pytest.raises(OSError, match=r"refused|reset|111|104"):
        await tunnel.get()
    answer = await reader.read()
    assert b"Connection: close" in answer
    assert answer.endswith(b"slow")
    await stopping
    idle_writer.close()
    writer.close()
    await tunnel.start_edge()
