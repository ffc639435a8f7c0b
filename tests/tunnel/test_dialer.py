"""The dialer against an edge worked by hand: redials, sessions, needs, and a handler that misbehaves."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest

from tests.tunnel.world import until
from tunnel.dial import Dialer, Target
from tunnel.dial.target import OpenGate
from tunnel.wire import (
    Activity,
    Code,
    HostHello,
    Kind,
    Need,
    Open,
    Ping,
    Pong,
    Refused,
    ToHost,
    ToMachine,
    Welcome,
    decode_host_hello,
    decode_message,
    encode_refusal,
)

Accepted = tuple[HostHello, asyncio.StreamReader, asyncio.StreamWriter]


class HandWorkedEdge:
    """An edge that does only what the test says."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[Accepted] = asyncio.Queue()
        self.refuse: Refused | None = None
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def next(self, kind: Kind) -> Accepted:
        async with asyncio.timeout(5):
            found = await self.accepted.get()
        assert found[0].kind is kind
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        hello = decode_host_hello(await reader.readline())
        writer.write(encode_refusal(self.refuse) if self.refuse else Welcome("by-hand").encode())
        await self.accepted.put((hello, reader, writer))


class Agent:
    """A handler that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.fails: Exception | None = None
        self.opened: list[socket.socket] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def open_machine(self, machine: str, *, may_wake: bool, request: str, quiet: bool = False) -> Target:
        self.told.append(("open", machine, may_wake, request))
        await self.go_on.wait()
        if self.fails is not None:
            raise self.fails
        return Target(await self.open_host(), OpenGate())

    def machine_state(self, machine: str) -> str:
        self.told.append(("state", machine))
        return "paused"

    async def open_host(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.opened.append(ours)
        return theirs

    def activity(self, edge: str, machine: str, in_flight: int, *, quiet: bool = False) -> None:
        self.told.append((edge, machine, in_flight))

    def link_lost(self, edge: str) -> None:
        self.told.append(("lost", edge))


@pytest.fixture
async def edge() -> AsyncIterator[HandWorkedEdge]:
    it = HandWorkedEdge()
    await it.start()
    yield it
    await it.stop()


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    it = Agent()
    yield it
    for sock in it.opened:
        sock.close()


@pytest.fixture
async def dialer(edge: HandWorkedEdge, agent: Agent) -> AsyncIterator[Dialer]:
    it = Dialer([("127.0.0.1", edge.port)], "h1", "token", agent)
    running = asyncio.get_running_loop().create_task(it.run())
    yield it
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0.02)


async def test_it_links_answers_pings_and_passes_activity_on(
    edge: HandWorkedEdge, agent: Agent, dialer: Dialer
) -> None:
    hello, reader, writer = await edge.next(Kind.LINK)
    assert (hello.host, hello.token) == ("h1", "token")
    name = f"127.0.0.1:{edge.port}"
    writer.write(b'{"m":"from the future"}\n' + Activity("m1", 2).encode() + Ping(9).encode())
    while (message := decode_message(await reader.readline())) != Pong(9):
        assert isinstance(message, Ping)
    assert agent.told == [(name, "m1", 2)]
    assert dialer.linked() == (name,)


async def test_it_dials_what_is_needed_in_the_links_session_and_no_more_than_its_cap(
    edge: HandWorkedEdge, dialer: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnel.dial.dialer.MAX_IDLE_CONNECTIONS", 5)
    hello, _, writer = await edge.next(Kind.LINK)
    writer.write(Need(3).encode() + Need(4000).encode())
    for _ in range(5):
        data, _, _ = await edge.next(Kind.DATA)
        assert data.session == hello.session
    await asyncio.sleep(0.05)
    assert edge.accepted.empty()
    assert dialer.linked()


async def test_a_lost_link_is_told_and_redialed_with_the_same_session_while_streams_go_on(
    edge: HandWorkedEdge, agent: Agent, dialer: Dialer
) -> None:
    first, _, link = await edge.next(Kind.LINK)
    link.write(Need(2).encode())
    _, reader, stream = await edge.next(Kind.DATA)
    _, idle, _ = await edge.next(Kind.DATA)
    stream.write(Open(ToHost("h1")).encode())
    assert json.loads(await reader.readline())["ok"] is True
    link.close()
    assert await idle.read() == b""
    again, _, _ = await edge.next(Kind.LINK)
    assert again.session == first.session
    assert agent.told == [("lost", f"127.0.0.1:{edge.port}")]
    stream.write(b"still open")
    (ours,) = agent.opened
    ours.setblocking(False)
    assert await asyncio.get_running_loop().sock_recv(ours, 100) == b"still open"
    assert dialer.linked()


async def test_it_comes_back_to_an_edge_that_was_away(edge: HandWorkedEdge, dialer: Dialer) -> None:
    await edge.next(Kind.LINK)
    port = edge.port
    await edge.stop()
    await until(lambda: dialer.linked() == ())
    await asyncio.sleep(0.3)
    await edge.start(port)
    await edge.next(Kind.LINK)
    await until(lambda: bool(dialer.linked()))


async def test_a_refused_link_is_tried_again_slower_and_slower(edge: HandWorkedEdge, dialer: Dialer) -> None:
    edge.refuse = Refused(Code.TUNNEL_TOKEN, "hello", "no")
    await asyncio.sleep(1.2)
    assert 2 <= edge.accepted.qsize() <= 8
    assert dialer.linked() == ()


async def test_silence_ends_a_link(edge: HandWorkedEdge, dialer: Dialer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunnel.dial.dialer.SILENCE_LIMIT_S", 0.2)
    await edge.next(Kind.LINK)
    await edge.next(Kind.LINK)
    assert dialer is not None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused(Code.MACHINE_FAILED, "boot", "broken"), "machine:failed"),
        (ValueError("a bug"), "wake:failed"),
        (OSError("a bug of another kind"), "wake:failed"),
    ],
)
async def test_whatever_the_handler_raises_the_edge_is_answered(
    edge: HandWorkedEdge, agent: Agent, dialer: Dialer, error: Exception, code: str
) -> None:
    agent.fails = error
    _, _, link = await edge.next(Kind.LINK)
    link.write(Need(1).encode())
    _, reader, stream = await edge.next(Kind.DATA)
    stream.write(Open(ToMachine("m1", may_wake=False), "r-7").encode())
    assert json.loads(await reader.readline())["code"] == code
    assert await reader.read() == b""
    assert agent.told == [("open", "m1", False, "r-7")]
    assert dialer.linked()


async def test_a_target_that_comes_too_late_is_closed(edge: HandWorkedEdge, agent: Agent, dialer: Dialer) -> None:
    agent.go_on.clear()
    _, _, link = await edge.next(Kind.LINK)
    link.write(Need(1).encode())
    _, _, stream = await edge.next(Kind.DATA)
    stream.write(Open(ToMachine("m1", may_wake=True), "r").encode())
    await until(lambda: len(agent.told) == 1)
    stream.transport.abort()
    await asyncio.sleep(0.02)
    agent.go_on.set()
    await until(lambda: len(agent.opened) == 1)
    agent.opened[0].settimeout(2)
    assert await asyncio.to_thread(agent.opened[0].recv, 1) == b""
    assert dialer.linked()


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b'{"v":1,"open":{}}\n', b"x" * 20_000])
async def test_what_is_no_open_closes_the_data_connection(edge: HandWorkedEdge, dialer: Dialer, line: bytes) -> None:
    _, _, link = await edge.next(Kind.LINK)
    link.write(Need(1).encode())
    _, reader, stream = await edge.next(Kind.DATA)
    stream.write(line)
    assert await reader.read() == b""
    assert dialer.linked()
