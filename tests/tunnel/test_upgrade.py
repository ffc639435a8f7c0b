"""Upgraded connections: a plain pipe after the app's 101, and never before."""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.tunnel.backend import Visit
from tests.tunnel.test_exchange import GET, read_answer
from tests.tunnel.world import Machine, World, until
from tunnel.wire import Route

UPGRADE = b"GET %b HTTP/1.1\r\nHost: blog.localhost\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def test_a_websocket_echoes_through_the_tunnel_and_across_a_sleep(tunnel: World) -> None:
    async with serve(echo, "127.0.0.1", 0) as server:
        machine = tunnel.agent.machines["ws"] = Machine(server.sockets[0].getsockname()[1], awake=False)
        await tunnel.publish(2, Route("ws.localhost", "ws", "h1", "ws"))
        async with connect(
            f"ws://ws.localhost:{tunnel.port}/", host="127.0.0.1", port=tunnel.port, ping_interval=None
        ) as socket:
            for size in (1, 200, 70_000, 900_000):
                await socket.send("x" * size)
                assert await socket.recv() == "x" * size
            assert machine.wakes == 1
            assert tunnel.agent.activities[-1] == ("ws", 1)
            machine.awake = False
            await socket.send("still here?")
            assert await socket.recv() == "still here?"
            assert machine.wakes == 2
        await until(lambda: tunnel.agent.activities[-1] == ("ws", 0))


async def test_any_token_is_tunnelled_after_101_and_half_close_passes(tunnel: World) -> None:
    async def switch(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nfirst")
        await visit.send(b"got %d" % len(await visit.rest()))
        visit.writer.close()

    tunnel.backend.replies[b"/raw"] = switch
    reader, writer = await tunnel.open()
    writer.write(UPGRADE % b"/raw" + b"\x00early")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head == b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"
    assert await reader.readexactly(5) == b"first"
    writer.write(b"GET /not-http HTTP/1.1\r\n\r\n")
    writer.write_eof()
    async with asyncio.timeout(5):
        assert await reader.read() == b"got 32"
    writer.close()
    await until(lambda: tunnel.agent.activities[-1] == ("m1", 0))


async def test_without_101_no_byte_after_the_request_reaches_the_app(tunnel: World) -> None:
    async def no(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno")

    tunnel.backend.replies[b"/no"] = no
    answer = await tunnel.say(UPGRADE % b"/no" + GET % b"/smuggled")
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert [seen.target for seen in tunnel.backend.requests] == [b"/no"]


async def test_a_refused_upgrade_leaves_the_connection_usable(tunnel: World) -> None:
    async def no(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno")

    tunnel.backend.replies[b"/no"] = no
    reader, writer = await tunnel.open()
    writer.write(UPGRADE % b"/no")
    assert (await read_answer(reader))[1] == b"no"
    writer.write(GET % b"/")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()


async def test_h2c_is_never_asked_for(tunnel: World) -> None:
    await tunnel.get("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    (seen,) = tunnel.backend.requests
    assert seen.values(b"upgrade") == []
    assert seen.values(b"http2-settings") == []


async def test_a_websocket_101_with_a_wrong_accept_is_502(tunnel: World) -> None:
    async def lie(visit: Visit) -> None:
        await visit.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"
        )

    tunnel.backend.replies[b"/ws"] = lie
    answer = await tunnel.say(
        b"GET /ws HTTP/1.1\r\nHost: blog.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 502 ")


async def test_a_client_that_vanishes_ends_the_tunnel_for_the_app(tunnel: World) -> None:
    async def switch(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
        await visit.reader.read(1)

    tunnel.backend.replies[b"/raw"] = switch
    reader, writer = await tunnel.open()
    writer.write(UPGRADE % b"/raw")
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    await until(lambda: tunnel.backend.open_connections == 0)
    await until(lambda: tunnel.agent.activities[-1] == ("m1", 0))
