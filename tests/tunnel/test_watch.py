"""A watcher hears of the first byte once; the stream itself is as if nobody watched."""

from __future__ import annotations

import asyncio
import socket

from tunnel.dial.data import adopt
from tunnel.dial.watch import watch

WAIT_S = 5.0


class Heard:
    """A watcher that notes."""

    def __init__(self) -> None:
        self.spoke = 0
        self.ended = 0

    def app_spoke(self) -> None:
        self.spoke += 1

    def stream_ended(self) -> None:
        self.ended += 1


class Reader(asyncio.Protocol):
    """What the stream's own end got."""

    def __init__(self) -> None:
        self.got = b""
        self.eof = asyncio.Event()
        self.lost = asyncio.Event()
        self.held: list[bool] = []

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> bool:
        self.eof.set()
        return True

    def pause_writing(self) -> None:
        self.held.append(True)

    def resume_writing(self) -> None:
        self.held.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def watched() -> tuple[asyncio.Transport, socket.socket, Reader, Heard]:
    ours, app = socket.socketpair()
    app.setblocking(False)
    reader, heard = Reader(), Heard()
    transport = await adopt(ours, lambda: reader)
    watch(transport, heard)
    return transport, app, reader, heard


async def until(got: Reader, want: bytes) -> None:
    async with asyncio.timeout(WAIT_S):
        while got.got != want:
            await asyncio.sleep(0.005)


async def test_the_first_byte_is_told_once_and_every_byte_arrives() -> None:
    transport, app, reader, heard = await watched()
    app.send(b"one")
    await until(reader, b"one")
    app.send(b"two")
    await until(reader, b"onetwo")
    assert (heard.spoke, heard.ended) == (1, 0)
    assert transport.get_protocol() is reader
    transport.abort()
    app.close()
    async with asyncio.timeout(WAIT_S):
        await reader.lost.wait()


async def test_an_end_without_a_byte_is_told_and_passed_on() -> None:
    transport, app, reader, heard = await watched()
    app.close()
    async with asyncio.timeout(WAIT_S):
        await reader.eof.wait()
    assert (heard.spoke, heard.ended > 0) == (0, True)
    transport.abort()
    async with asyncio.timeout(WAIT_S):
        await reader.lost.wait()


async def test_back_pressure_passes_by_the_watcher() -> None:
    transport, app, reader, _ = await watched()
    transport.set_write_buffer_limits(1024, 512)
    transport.write(b"x" * 4_000_000)
    assert reader.held == [True]
    async with asyncio.timeout(WAIT_S):
        while reader.held[-1:] != [False]:
            await asyncio.get_running_loop().sock_recv(app, 1 << 20)
    transport.abort()
    app.close()
    async with asyncio.timeout(WAIT_S):
        await reader.lost.wait()
