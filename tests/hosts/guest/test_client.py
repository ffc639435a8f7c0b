"""The host's client against a guest that may be anything: slow, gone, or taken over."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from hosts.guest.client import GuestClient, GuestError
from hosts.wire.spec import Process
from tunnel.tasks import spawn

Answer = Callable[[dict[str, object]], bytes]


@asynccontextmanager
async def guest(answer: Answer) -> AsyncIterator[GuestClient]:
    """A client of a guest that answers each request line by `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(answer(json.loads(line)))
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
            ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def open_socket(timeout_s: float) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return sock

    async with server:
        yield GuestClient(open_socket, open_socket)
        async with asyncio.timeout(5):
            await ended.wait()


def saying(**fields: object) -> Answer:
    return lambda request: json.dumps({"ok": True, **fields}).encode() + b"\n"


async def code_of(answer: Answer, *, timeout_s: float = 2.0) -> str:
    async with guest(answer) as client:
        with pytest.raises(GuestError) as error:
            await client.status(timeout_s)
        return error.value.code


STATUS: dict[str, object] = {
    "phase": "running",
    "pid": 7,
    "restarts": 0,
    "exit_code": None,
    "port": 80,
    "listening": [["::", 80]],
}


async def test_status_is_read() -> None:
    async with guest(saying(**STATUS)) as client:
        status = await client.status()
    assert (status.phase, status.pid, status.port, status.listening[0].address) == ("running", 7, 80, "::")


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "root"},
        {"pid": "7"},
        {"pid": -1},
        {"restarts": True},
        {"port": 0},
        {"port": 70000},
        {"listening": "x"},
        {"listening": [["a"]]},
        {"listening": [["a", "80"]]},
        {"listening": [["a", 99999]]},
        {"listening": [["a", True]]},
        {"exit_code": 10**9},
    ],
)
async def test_status_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    assert await code_of(saying(**{**STATUS, **change})) == "guest:bad_answer"


@pytest.mark.parametrize("ms", ["1", -1, "Infinity", 10**400, float("inf"), float("nan")])
async def test_a_step_takes_a_time_that_control_can_store(ms: object) -> None:
    async with guest(saying(steps=[["clock", ms]])) as client:
        with pytest.raises(GuestError) as error:
            await client.hook()
    assert error.value.code == "guest:bad_answer"


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b"\xff\n", b"[" * 100_000 + b"\n"])
async def test_answers_that_are_no_objects_are_refused(line: bytes) -> None:
    assert await code_of(lambda request: line) == "guest:bad_answer"


async def test_an_answer_without_end_is_refused() -> None:
    assert await code_of(lambda request: b"x" * (9 * 1024 * 1024), timeout_s=10) == "guest:bad_answer"


async def test_a_silent_guest_is_a_time_out() -> None:
    assert await code_of(lambda request: b"", timeout_s=0.2) == "guest:timeout"


async def test_a_refusal_keeps_its_words_but_no_code_of_its_own() -> None:
    def refuse(request: dict[str, object]) -> bytes:
        return b'{"ok":false,"code":"billing:free","message":"no\\u001b[2J"}\n'

    async with guest(refuse) as client:
        with pytest.raises(GuestError) as error:
            await client.sync()
    assert (error.value.code, error.value.message) == ("guest:bad_answer", "no\\x1b[2J")


async def test_log_lines_are_made_safe() -> None:
    async with guest(saying(lines=["\x1b]0;title\x07", 5, "ok"], next=3)) as client:
        assert (await client.logs()).lines == ("\\x1b]0;title\\x07", "ok")


async def test_hello_goes_on_asking_until_the_guest_is_there() -> None:
    attempts = 0

    async def open_socket(timeout_s: float) -> socket.socket:
        nonlocal attempts
        attempts += 1
        raise ConnectionRefusedError(111, "refused")

    began = time.monotonic()
    with pytest.raises(GuestError) as error:
        await GuestClient(open_socket, open_socket).hello(0.5)
    assert error.value.code == "guest:timeout"
    assert attempts > 3
    assert time.monotonic() - began < 2


async def test_the_time_is_read_after_the_connection_stands() -> None:
    seen: list[object] = []
    now = [1]

    def answer(request: dict[str, object]) -> bytes:
        seen.append(request.get("clock_ms"))
        return b'{"ok":true,"steps":[]}\n'

    async with guest(answer) as client:

        async def open_slowly(timeout_s: float) -> socket.socket:
            now[0] = 2
            return await client._open_socket(timeout_s)

        await GuestClient(open_slowly, open_slowly).start(
            Process(command="true"), hostname="x", clock_ms=lambda: now[0], entropy=bytes(32)
        )
    assert seen == [2]


async def test_a_build_ends_with_its_connection() -> None:
    async with guest(lambda request: b'{"line":"a"}\n{"ok":true,"ended":0}\n') as client:
        news = client.build({}, clock_ms=lambda: 1, entropy=bytes(32), nameservers=())
        assert [item async for item in news] == [{"line": "a"}]


async def test_a_flood_of_news_leaves_the_loop_to_others() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = spawn(count(), name="others")
    async with guest(lambda request: b'{"line":"a"}\n' * 3000 + b'{"ok":true,"ended":0}\n') as client:
        news = client.build({}, clock_ms=lambda: 1, entropy=bytes(32), nameservers=())
        assert len([item async for item in news]) == 3000
    others.cancel()
    assert turns >= 3000
