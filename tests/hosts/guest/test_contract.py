"""The resume contract: the host's asking against guests of every kind, and the real responder, which may not set clocks
here and says so.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from hosts.guest.client import GuestError
from hosts.guest.contract import CLOCK_TOLERANCE_S, MAGIC, RESEND_S, Met, meet
from tests.environment import ROOT

ENTROPY = bytes(range(32))
MET = struct.pack("<5I", 0, 0, 1500, 250, 0)

Reply = Callable[[bytes], bytes | None]


class _Peer(asyncio.DatagramProtocol):
    def __init__(self, reply: Reply, late_s: float) -> None:
        self._reply, self._late_s = reply, late_s
        self.requests: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.requests.append(data)
        if (answer := self._reply(data)) is not None:
            asyncio.get_running_loop().call_later(self._late_s, self._transport.sendto, answer, addr)


@asynccontextmanager
async def guest(reply: Reply, *, late_s: float = 0.0) -> AsyncIterator[tuple[socket.socket, _Peer]]:
    """A socket connected to a guest that answers by `reply`."""
    loop = asyncio.get_running_loop()
    transport, peer = await loop.create_datagram_endpoint(lambda: _Peer(reply, late_s), ("127.0.0.1", 0))
    with connected(transport.get_extra_info("sockname")[1]) as sock:
        try:
            yield sock, peer
        finally:
            transport.close()


def connected(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.connect(("127.0.0.1", port))
    return sock


def answer(request: bytes, rest: bytes = MET) -> bytes:
    return MAGIC + request[8:24] + rest


async def ask(sock: socket.socket, *, timeout_s: float = 5.0) -> Met:
    return await meet(sock, clock_ms=lambda: 1_800_000_000_000, entropy=ENTROPY, timeout_s=timeout_s)


async def test_time_and_randomness_are_sent_and_the_steps_come_back() -> None:
    async with guest(answer) as (sock, peer):
        met = await ask(sock)
    assert [(step.name, step.ms) for step in met.steps] == [("clock", 1.5), ("random", 0.25)]
    assert not met.hook
    assert [struct.unpack("<Q32s", request[24:]) for request in peer.requests] == [(1_800_000_000 * 10**9, ENTROPY)]


async def test_a_hook_is_told_of() -> None:
    async with guest(lambda r: answer(r, struct.pack("<5I", 0, 0, 1, 1, 1))) as (sock, _):
        assert (await ask(sock)).hook


@pytest.mark.parametrize(("outcome", "said"), [(1, "clock"), (2, "random"), (9, "outcome 9")])
async def test_a_contract_that_was_not_met_is_an_error(outcome: int, said: str) -> None:
    async with guest(lambda r: answer(r, struct.pack("<5I", outcome, 1, 0, 0, 0))) as (sock, _):
        with pytest.raises(GuestError, match=f"{said}.*Operation not permitted"):
            await ask(sock)


async def test_a_lost_request_is_sent_again_as_the_same_one() -> None:
    seen: list[bytes] = []

    def third(request: bytes) -> bytes | None:
        seen.append(request)
        return answer(request) if len(seen) >= 3 else None

    async with guest(third) as (sock, _):
        await ask(sock)
    assert len({request[8:24] for request in seen[:3]}) == 1


async def test_an_old_time_is_set_once_more() -> None:
    async with guest(answer, late_s=CLOCK_TOLERANCE_S + 0.05) as (sock, peer):
        await ask(sock)
    assert len({request[8:24] for request in peer.requests}) == 2


@pytest.mark.parametrize(
    "reply",
    [
        lambda r: MAGIC + bytes(16) + MET,
        lambda r: b"BRWRSM\0\2" + r[8:24] + MET,
        lambda r: answer(r)[:-1],
        lambda r: answer(r) + b"x",
        lambda r: b"",
        lambda r: None,
    ],
    ids=["another nonce", "another version", "short", "long", "empty", "silent"],
)
async def test_what_is_no_answer_is_none(reply: Reply) -> None:
    async with guest(reply) as (sock, _):
        with pytest.raises(GuestError) as error:
            await ask(sock, timeout_s=RESEND_S * 1.5)
    assert error.value.code == "guest:timeout"


async def test_a_responder_that_is_started_again_is_waited_for() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with connected(port) as sock:
        asking = asyncio.ensure_future(ask(sock))  # noqa: TID251 - awaited below
        await asyncio.sleep(RESEND_S / 2)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Peer(answer, 0), ("127.0.0.1", port))
        assert (await asking).steps
        transport.close()


# The real one


@pytest.fixture(scope="module")
def responder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("responder") / "responder"
    source = ROOT / "hosts/guest/responder.c"
    subprocess.run(["tcc", "-nostdlib", "-static", "-Wall", "-Werror", "-o", program, source], check=True, timeout=60)
    program.chmod(0o755)
    for folder in (program.parent, program.parent.parent, program.parent.parent.parent):
        folder.chmod(0o755)  # where another user must get by
    return program


@pytest.fixture
def real(responder: Path) -> Iterator[int]:
    """Its port. It runs as nobody, so that this machine keeps its clock."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    loopback = str(int.from_bytes(socket.inet_aton("127.0.0.1"), "big"))
    process = subprocess.Popen(
        [responder, loopback, str(port), loopback, "/nothing", "/bin/sh"], user=65534, group=65534
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.root
async def test_the_real_responder_says_that_it_could_not_set_the_clock(real: int) -> None:
    with connected(real) as sock, pytest.raises(GuestError, match="clock could not be set: Operation not permitted"):
        await ask(sock)


@pytest.mark.root
async def test_the_real_responder_answers_a_repeated_request_alike_and_sees_the_hook(real: int) -> None:
    request = MAGIC + os.urandom(16) + struct.pack("<Q32s", 1, ENTROPY)
    answers = await exchange(real, [request, request])
    assert answers[0] == answers[1]
    assert answers[0][:24] == request[:24]
    assert struct.unpack("<5I", answers[0][24:])[4] == 1


@pytest.mark.root
async def test_the_real_responder_is_silent_to_what_is_no_request(real: int) -> None:
    good = MAGIC + os.urandom(16) + struct.pack("<Q32s", 1, ENTROPY)
    answers = await exchange(real, [b"", b"x", good[:-1], good + b"x", b"X" + good[1:], bytes(65000), good])
    assert len(answers) == 1
    assert answers[0][8:24] == good[8:24]


@pytest.mark.root
async def test_the_real_responder_listens_to_one_address_only(real: int) -> None:
    good = MAGIC + os.urandom(16) + struct.pack("<Q32s", 1, ENTROPY)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.2", 0))
        stranger.settimeout(0.2)
        stranger.sendto(good, ("127.0.0.1", real))
        with pytest.raises(TimeoutError):
            stranger.recv(100)


async def exchange(port: int, requests: list[bytes]) -> list[bytes]:
    """Send them all; what came back until the line was quiet."""
    loop = asyncio.get_running_loop()
    answers: list[bytes] = []
    with connected(port) as sock:
        for _ in range(100):  # until it is up
            try:
                await loop.sock_sendall(sock, b"?")
                await asyncio.sleep(0.02)
                sock.send(b"?")
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
        for request in requests:
            await loop.sock_sendall(sock, request)
        while True:
            try:
                async with asyncio.timeout(0.3):
                    answers.append(await loop.sock_recv(sock, 200))
            except TimeoutError:
                return answers
