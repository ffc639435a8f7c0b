"""QMP against a QEMU that misbehaves in every way it can."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hosts.vmm.protocol import NoAnswer, VmmError
from hosts.vmm.qmp import Qmp, connect_unix, listen_unix

GREETING = b'{"QMP": {"version": {}, "capabilities": []}}\r\n'

Answer = Callable[[dict[str, object]], bytes]


@asynccontextmanager
async def qemu(path: Path, answer: Answer, greeting: bytes = GREETING) -> AsyncIterator[None]:
    """Something on the other end of the socket that answers each command with bytes of the test's choice."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(greeting)
            while line := await reader.readline():
                writer.write(answer(json.loads(line)))
                await writer.drain()
        except ConnectionError:
            pass  # the client did not want more of it
        finally:
            writer.transport.abort()

    async with await asyncio.start_unix_server(serve, sock=listen_unix(path)):
        yield
        await asyncio.sleep(0.01)  # for the server's side of it to end as well


def polite(message: dict[str, object]) -> bytes:
    return json.dumps({"return": {"asked": message["execute"]}, "id": message["id"]}).encode() + b"\r\n"


def after_negotiation(answer: Answer) -> Answer:
    return lambda message: polite(message) if message["execute"] == "qmp_capabilities" else answer(message)


async def test_commands_and_answers_meet_by_their_number(tmp_path: Path) -> None:
    held: list[dict[str, object]] = []

    def in_reverse(message: dict[str, object]) -> bytes:
        held.append(message)
        return b"".join(polite(one) for one in reversed(held)) if len(held) == 2 else b""

    async with qemu(tmp_path / "qmp", after_negotiation(in_reverse)):
        qmp = await Qmp.connect(tmp_path / "qmp", 5)
        one, two = await asyncio.gather(qmp.execute("one"), qmp.execute("two"))
        assert (one, two) == ({"asked": "one"}, {"asked": "two"})
        qmp.close()


async def test_a_refusal_is_an_error_that_says_why(tmp_path: Path) -> None:
    def refuse(message: dict[str, object]) -> bytes:
        return (
            json.dumps({"error": {"class": "GenericError", "desc": "not today"}, "id": message["id"]}).encode() + b"\n"
        )

    async with qemu(tmp_path / "qmp", after_negotiation(refuse)):
        qmp = await Qmp.connect(tmp_path / "qmp", 5)
        with pytest.raises(VmmError, match="QMP stop: not today"):
            await qmp.execute("stop")
        qmp.close()


async def test_an_expected_event_is_caught_and_others_are_not(tmp_path: Path) -> None:
    def with_events(message: dict[str, object]) -> bytes:
        events = [{"event": "MIGRATION", "data": {"status": status}} for status in ("active", "completed")]
        return b"".join(json.dumps(event).encode() + b"\n" for event in events) + polite(message)

    async with qemu(tmp_path / "qmp", after_negotiation(with_events)):
        qmp = await Qmp.connect(tmp_path / "qmp", 5)
        finished = qmp.expect(lambda name, data: name == "MIGRATION" and data.get("status") == "completed")
        await qmp.execute("migrate")
        assert await finished == {"status": "completed"}
        qmp.close()


@pytest.mark.parametrize(
    "bytes_back",
    [b"not json\n", b"[1, 2]\n", b"[" * 100_000 + b"\n", b"x" * (2 << 20)],
    ids=["no JSON", "no object", "too deep", "no end"],
)
async def test_nonsense_ends_the_connection(tmp_path: Path, bytes_back: bytes) -> None:
    async with qemu(tmp_path / "qmp", after_negotiation(lambda _: bytes_back)):
        qmp = await Qmp.connect(tmp_path / "qmp", 5)
        with pytest.raises(VmmError, match="QEMU sent"):
            await qmp.execute("query-status")
        with pytest.raises(VmmError, match="QEMU sent"):
            await qmp.execute("query-status")


async def test_silence_ends_in_time(tmp_path: Path) -> None:
    async with qemu(tmp_path / "qmp", after_negotiation(lambda _: b"")):
        qmp = await Qmp.connect(tmp_path / "qmp", 5)
        with pytest.raises(NoAnswer, match=r"no answer within 0\.05 s"):
            await qmp.execute("query-status", timeout_s=0.05)
        qmp.close()
    async with qemu(tmp_path / "qmp", polite, greeting=b""):
        with pytest.raises(VmmError, match="no QMP greeting"):
            await Qmp.connect(tmp_path / "qmp", 0.05)


async def test_an_end_fails_what_is_pending_and_expected(tmp_path: Path) -> None:
    listener = listen_unix(tmp_path / "qmp")
    qmp = Qmp(await connect_unix(tmp_path / "qmp", 5))
    accepted, _ = listener.accept()
    event = qmp.expect(lambda *_: True)
    async with asyncio.TaskGroup() as group:
        command = group.create_task(outcome(qmp.execute("stop")))
        await asyncio.sleep(0.05)
        accepted.close()
        listener.close()
    assert "QEMU closed the connection" in command.result() or "connection lost" in command.result()
    with pytest.raises(VmmError):
        await event


async def test_a_descriptor_travels_with_its_command(tmp_path: Path) -> None:
    listener = listen_unix(tmp_path / "qmp")
    qmp = Qmp(await connect_unix(tmp_path / "qmp", 5))
    accepted, _ = listener.accept()
    with (tmp_path / "state").open("wb") as file:
        await outcome(qmp.execute("getfd", {"fdname": "state"}, fd=file.fileno(), timeout_s=0.1))
    message, fds, _, _ = socket.recv_fds(accepted, 4096, 1)
    assert json.loads(message)["arguments"] == {"fdname": "state"}
    os.write(fds[0], b"written by another process")
    os.close(fds[0])
    assert (tmp_path / "state").read_bytes() == b"written by another process"
    qmp.close()
    accepted.close()
    listener.close()


async def test_the_path_may_be_longer_than_a_socket_address(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    async with qemu(folder / "qmp", polite):
        qmp = await Qmp.connect(folder / "qmp", 5)
        assert await qmp.execute("stop") == {"asked": "stop"}
        qmp.close()
    assert (folder / "qmp").stat().st_mode & 0o777 == 0o600


async def outcome(command: Awaitable[object]) -> str:
    try:
        return str(await command)
    except VmmError as e:
        return str(e)
