"""The edge as a process: it starts, says what is wrong, dies hard and comes back with its routes, and drains."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tunnel.backend import Backend, Visit
from tests.tunnel.world import TOKEN, Agent, Machine, until
from tunnel.client import EdgeClient
from tunnel.dial import Dialer
from tunnel.wire import Route

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Process:
    """`python -m tunnel`."""

    def __init__(self, folder: Path) -> None:
        self.http, self.link = free_port(), free_port()
        (folder / "token").write_text(TOKEN + "\n")
        self.socket = folder / "run" / "edge.sock"
        self.log = folder / "edge.log"
        self.env = {
            "PATH": os.environ["PATH"],
            "BURROW_EDGE_HTTP": f"127.0.0.1:{self.http}",
            "BURROW_EDGE_LINK": f"127.0.0.1:{self.link}",
            "BURROW_EDGE_CONTROL_SOCKET": str(self.socket),
            "BURROW_EDGE_STATE": str(folder / "state"),
            "BURROW_LINK_TOKEN_FILE": str(folder / "token"),
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tunnel", env=self.env, cwd=ROOT, stdout=log, stderr=log
            )
        await until(lambda: _answers(self.http), 15.0)

    async def end(self, signum: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(signum)
        async with asyncio.timeout(15):
            return await self._process.wait()

    async def get(self, path: str = "/") -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.http)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: blog.localhost:{self.http}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer


def _answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    it = Process(tmp_path)
    await it.start()
    try:
        yield it
    finally:
        with contextlib.suppress(ProcessLookupError):
            await it.end(signal.SIGKILL)


async def test_an_edge_killed_hard_is_back_with_its_routes_and_drains_on_sigterm(process: Process) -> None:
    async def slow(visit: Visit) -> None:
        await visit.read_body()
        await asyncio.sleep(0.5)
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")

    backend = Backend()
    await backend.start()
    backend.replies[b"/slow"] = slow
    agent = Agent(machines={"m1": Machine(backend.port)}, api_port=backend.port)
    dialer = Dialer([("127.0.0.1", process.link)], "h1", TOKEN, agent)
    dialing = asyncio.get_running_loop().create_task(dialer.run())
    client = EdgeClient([process.socket])
    routes = [Route("blog.localhost", "m1", "h1", "blog")]
    try:
        await asyncio.to_thread(client.publish_routes, 3, routes)
        assert (await process.get()).endswith(b"hello")
        assert await asyncio.to_thread(client.request_host, "h1", "GET", "/") == (200, b"hello")
        assert await process.end(signal.SIGKILL) == -signal.SIGKILL
        await process.start()
        assert (await process.get()).endswith(b"hello")
        asking = asyncio.get_running_loop().create_task(process.get("/slow"))
        await until(lambda: any(seen.target == b"/slow" for seen in backend.requests))
        assert await process.end(signal.SIGTERM) == 0
        assert (await asking).endswith(b"slow")
        assert not process.socket.exists()
    finally:
        dialing.cancel()
        await asyncio.gather(dialing, return_exceptions=True)
        await backend.stop()
    assert b'"event": "request"' in process.log.read_bytes()
    assert b"Traceback" not in process.log.read_bytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"BURROW_EDGE_HTTP": ""}, b"BURROW_EDGE_HTTP: missing"),
        ({"BURROW_LINK_TOKEN_FILE": "/nowhere"}, b"BURROW_LINK_TOKEN_FILE: "),
    ],
)
async def test_a_wrong_setting_stops_the_start_with_a_line_that_names_it(
    tmp_path: Path, change: dict[str, str], said: bytes
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tunnel", env=Process(tmp_path).env | change, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(20):
        _, errors = await process.communicate()
    assert process.returncode == 78
    assert said in errors
    assert errors.count(b"\n") == 1


async def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    it = Process(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", it.http))
        taken.listen()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tunnel", env=it.env, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(20):
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"in use" in errors
