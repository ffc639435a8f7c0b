"""The splice between an edge and a machine: the gate, order, half-close and back-pressure, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from tests.tunnel.world import until
from tunnel.dial.data import DataConnection, State
from tunnel.dial.target import Target
from tunnel.wire import OPENED_OK, Code, HostHello, Kind, Open, Refused, ToMachine, Welcome

HELLO = HostHello(Kind.DATA, "h", "t" * 32, "s")


class Gate:
    """A gate worked by hand."""

    def __init__(self) -> None:
        self.open = True
        self.touches = 0
        self.waits = 0
        self.refuse = False
        self.opened = asyncio.Event()

    def touch(self) -> None:
        self.touches += 1

    def is_open(self) -> bool:
        return self.open

    async def wait(self) -> None:
        self.waits += 1
        await self.opened.wait()
        if self.refuse:
            raise Refused(Code.WAKE_FAILED, "resume", "no")
        self.open = True


class Stream:
    """An edge's end and an app's end, with a data connection between them."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.edge: socket.socket
        self.app: socket.socket
        self.connection: DataConnection
        self.closed = 0
        self._target: socket.socket

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.edge, ours = socket.socketpair()
        self.app, self._target = socket.socketpair()
        for sock in (self.edge, self.app):
            sock.setblocking(False)
        _, self.connection = await loop.create_unix_connection(
            lambda: DataConnection(HELLO, self, on_opening=lambda _: None, on_closed=self._on_closed), sock=ours
        )
        assert await self.from_edge_side() == HELLO.encode()
        await self.send(Welcome("e").encode())
        await until(lambda: self.connection.state is State.IDLE)
        await self.send(Open(ToMachine("m", may_wake=True), "r").encode())
        assert await self.from_edge_side() == OPENED_OK

    def _on_closed(self, connection: DataConnection) -> None:
        self.closed += 1

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.edge, data)

    async def from_edge_side(self) -> bytes:
        async with asyncio.timeout(5):
            return await asyncio.get_running_loop().sock_recv(self.edge, 1_000_000)

    async def at_app(self) -> bytes:
        async with asyncio.timeout(5):
            return await asyncio.get_running_loop().sock_recv(self.app, 1_000_000)

    async def app_says(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.app, data)

    # Handler

    async def open_machine(self, machine: str, *, may_wake: bool, request: str, quiet: bool = False) -> Target:
        return Target(self._target, self.gate)

    def machine_state(self, machine: str) -> str:
        return "running"

    async def open_host(self) -> socket.socket:
        raise NotImplementedError

    def activity(self, edge: str, machine: str, in_flight: int, *, quiet: bool = False) -> None: ...

    def link_lost(self, edge: str) -> None: ...


@pytest.fixture
async def stream() -> AsyncIterator[Stream]:
    it = Stream()
    await it.start()
    yield it
    it.connection.close()
    it.edge.close()
    it.app.close()
    await until(lambda: it.closed == 1)


async def test_bytes_pass_both_ways_and_touch_the_clock_one_way(stream: Stream) -> None:
    await stream.send(b"ask")
    assert await stream.at_app() == b"ask"
    touches = stream.gate.touches
    await stream.app_says(b"answer")
    assert await stream.from_edge_side() == b"answer"
    assert touches == stream.gate.touches == 1


async def test_a_closed_gate_holds_edge_bytes_in_order_and_lets_app_bytes_by(stream: Stream) -> None:
    stream.gate.open = False
    await stream.send(b"one ")
    await until(lambda: stream.gate.waits == 1)
    await stream.send(b"two ")
    await stream.app_says(b"still talking")
    assert await stream.from_edge_side() == b"still talking"
    with pytest.raises(BlockingIOError):
        stream.app.recv(10)
    stream.gate.opened.set()
    got = b""
    while len(got) < 8:
        got += await stream.at_app()
    assert got == b"one two "
    assert stream.gate.waits == 1


async def test_an_end_waits_behind_the_bytes_before_it(stream: Stream) -> None:
    stream.gate.open = False
    await stream.send(b"last words")
    await until(lambda: stream.gate.waits == 1)
    stream.edge.shutdown(socket.SHUT_WR)
    await asyncio.sleep(0.02)
    stream.gate.opened.set()
    assert await stream.at_app() == b"last words"
    assert await stream.at_app() == b""
    await stream.app_says(b"answer")
    assert await stream.from_edge_side() == b"answer"


async def test_nothing_but_an_end_wakes_nobody(stream: Stream) -> None:
    stream.gate.open = False
    stream.edge.shutdown(socket.SHUT_WR)
    assert await stream.at_app() == b""
    assert stream.gate.waits == 0


async def test_a_gate_that_refuses_cuts_the_stream(stream: Stream) -> None:
    stream.gate.open = False
    stream.gate.refuse = True
    stream.gate.opened.set()
    await stream.send(b"x")
    assert await stream.at_app() == b""
    assert await stream.from_edge_side() == b""


async def test_a_sleeping_machine_takes_no_more_than_the_sockets_hold(stream: Stream) -> None:
    stream.gate.open = False
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < 50_000_000:
            sent += stream.edge.send(b"x" * 65536)
            await asyncio.sleep(0)
    assert sent < 4_000_000
    stream.gate.opened.set()
    got = 0
    while got < sent:
        got += len(await stream.at_app())
    assert got == sent


async def test_both_ends_closed_means_closed(stream: Stream) -> None:
    stream.edge.shutdown(socket.SHUT_WR)
    stream.app.shutdown(socket.SHUT_WR)
    await until(lambda: stream.closed == 1)


async def test_an_app_that_goes_ends_the_edges_side_after_its_last_bytes(stream: Stream) -> None:
    await stream.app_says(b"bye")
    stream.app.close()
    assert await stream.from_edge_side() == b"bye"
    assert await stream.from_edge_side() == b""
