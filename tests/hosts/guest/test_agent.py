"""The guest agent's whole behaviour but for the guest: started on this machine and asked through the real client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hosts.guest.client import GuestClient, GuestError, Listening, NotListening
from hosts.wire.commands import Socket
from hosts.wire.spec import Process
from tests.hosts.guest.host_agent import OUTSIDE

pytestmark = pytest.mark.root

ANYWHERE = "0.0.0.0"  # noqa: S104 - the app's choice, as apps make it
PYTHON = "/usr/bin/python3"
AGENT = Path(__file__).with_name("host_agent.py")
ENTROPY = bytes(range(32))
TIMEOUT_S = 10.0

SERVE = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = self.path.encode() + b" " + self.rfile.read(size)
        print("got", self.command, self.path, flush=True)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
    def log_message(self, *a): pass
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


@dataclass
class Agent:
    """A running agent and where it notes what it was asked to set."""

    folder: Path
    port: int
    process: subprocess.Popen[str]

    @property
    def client(self) -> GuestClient:
        return GuestClient(self._open, self._open)

    @property
    def notes(self) -> list[str]:
        notes = self.folder / "notes"
        return notes.read_text().splitlines() if notes.exists() else []

    async def start(self, command: str, *, port: int = 0, env: dict[str, str] | None = None) -> int:
        """Start an app; the PORT it was given."""
        port = port or free_port()
        await self.client.start(
            Process(command=command, cwd="/", port=port, env=tuple((env or {}).items())),
            hostname="sample",
            clock_ms=lambda: 1_700_000_000_000,
            entropy=ENTROPY,
            nameservers=["192.0.2.1"],
        )
        return port

    async def listening(self) -> Listening:
        found = await self.client.await_listening(TIMEOUT_S)
        assert isinstance(found, Listening), found
        return found

    async def _open(self, timeout_s: float) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout_s)
        sock.setblocking(False)
        return sock


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    process = launch(tmp_path)
    assert process.stdout is not None
    yield Agent(tmp_path, int(process.stdout.readline()), process)
    end(process, tmp_path)


def launch(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([PYTHON, AGENT, folder], stdout=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str], folder: Path) -> None:
    process.kill()
    process.communicate()
    for group in ("app", *(p.name for p in folder.glob("task-*"))):
        for pid in (folder / group).read_text().split() if (folder / group).exists() else []:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def serve(host: str, port: int | str = "$PORT") -> str:
    return f"{PYTHON} -u -c '{SERVE}' {host} {port}"


def fetch(host: str, port: int, body: bytes = b"") -> bytes:
    with socket.create_connection((host, port), TIMEOUT_S) as sock:
        sock.sendall(
            b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        answer = b""
        while block := sock.recv(65536):
            answer += block
    return answer.partition(b"\r\n\r\n")[2]


async def test_says_hello(agent: Agent) -> None:
    hello = await agent.client.hello(TIMEOUT_S)
    assert (hello.agent, hello.phase) == (1, "idle")


async def test_sets_clock_randomness_and_name_before_the_app_starts(agent: Agent) -> None:
    await agent.start("true")
    assert agent.notes == [
        "clock 1700000000000",
        f"entropy {ENTROPY.hex()}",
        "identity sample 192.0.2.1",
    ]


async def test_finds_an_app_that_listens_on_its_port(agent: Agent) -> None:
    port = await agent.start(serve(ANYWHERE))
    assert await agent.listening() == Listening(port, (Socket(ANYWHERE, port),))


async def test_finds_an_app_that_ignores_its_port(agent: Agent) -> None:
    chosen = free_port()
    await agent.start(serve(ANYWHERE, chosen))
    assert (await agent.listening()).port == chosen


async def test_forwards_to_an_app_on_loopback(agent: Agent) -> None:
    port = await agent.start(serve("127.0.0.1"))
    assert (await agent.listening()).port == port
    assert await asyncio.to_thread(fetch, OUTSIDE, port, b"hello") == b"/x hello"


async def test_forwards_large_bodies_both_ways(agent: Agent) -> None:
    port = await agent.start(serve("127.0.0.1"))
    await agent.listening()
    body = bytes(range(256)) * 8192
    assert await asyncio.to_thread(fetch, OUTSIDE, port, body) == b"/x " + body


async def test_says_what_is_there_when_nothing_listens(agent: Agent) -> None:
    port = await agent.start("echo busy; exec sleep 60")
    found = await agent.client.await_listening(0.5)
    assert isinstance(found, NotListening)
    assert found.code == "check:not_listening"
    assert str(port) in found.message
    assert found.log_tail == ("busy",)


async def test_says_at_once_that_the_app_has_ended(agent: Agent) -> None:
    await agent.start("echo about to fail; exit 3")
    began = time.monotonic()
    found = await agent.client.await_listening(TIMEOUT_S)
    assert isinstance(found, NotListening)
    assert (found.code, found.exit_code, found.log_tail) == ("app:exited", 3, ("about to fail",))
    assert time.monotonic() - began < 5


async def test_a_command_that_does_not_exist_says_so_in_the_log(agent: Agent) -> None:
    await agent.start("no-such-program")
    found = await agent.client.await_listening(TIMEOUT_S)
    assert isinstance(found, NotListening)
    assert found.exit_code == 127
    assert "not found" in found.log_tail[-1]


async def test_starting_the_same_app_twice_changes_nothing(agent: Agent) -> None:
    port = await agent.start(serve(ANYWHERE))
    await agent.listening()
    pid = (await agent.client.status()).pid
    await agent.start(serve(ANYWHERE), port=port)
    assert (await agent.client.status()).pid == pid


async def test_refuses_another_app_in_the_same_machine(agent: Agent) -> None:
    await agent.start("sleep 60")
    with pytest.raises(GuestError, match="another app") as refused:
        await agent.start("sleep 61")
    assert refused.value.code == "guest:refused"


async def test_restarts_an_app_that_was_healthy(agent: Agent) -> None:
    port = await agent.start(serve("127.0.0.1"))
    await agent.listening()
    first = (await agent.client.status()).pid
    await agent.client.exec(f"kill -9 {first}")
    for _ in range(100):
        status = await agent.client.status()
        if status.phase == "running" and status.port == port:
            break
        await asyncio.sleep(0.1)
    assert status.restarts == 1
    assert status.pid != first
    assert await asyncio.to_thread(fetch, OUTSIDE, port) == b"/x "


async def test_gives_the_app_its_environment(agent: Agent) -> None:
    port = await agent.start(
        "env", env={"HOST": "::", "PORT": "1", "COLOUR": "blue", "BURROW_PUBLIC_HOST": "a.example"}
    )
    await agent.client.await_listening(TIMEOUT_S)
    lines = set((await agent.client.logs()).lines)
    assert {
        f"PORT={port}",
        "HOST=::",
        "COLOUR=blue",
        "PYTHONUNBUFFERED=1",
        "__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS=a.example",
    } <= lines


async def test_keeps_the_last_lines_and_their_numbers(agent: Agent) -> None:
    await agent.start("seq 1 3000")
    await agent.client.await_listening(TIMEOUT_S)
    page = await agent.client.logs()
    assert (page.lines[0], page.lines[-1], page.next) == ("1001", "3000", 3000)
    assert (await agent.client.logs(2999)).lines == ("3000",)
    assert (await agent.client.logs(3000)).lines == ()


async def test_a_resume_runs_the_apps_hook_command(agent: Agent) -> None:
    await agent.start(serve(ANYWHERE), env={"BURROW_AFTER_RESUME": "echo awake > $HOOK", "HOOK": "/dev/null"})
    await agent.listening()
    steps = await agent.client.hook()
    assert [step.name for step in steps] == ["hook"]


async def test_a_resume_calls_the_apps_hook_path(agent: Agent) -> None:
    await agent.start(serve(ANYWHERE), env={"BURROW_AFTER_RESUME": "/awake"})
    await agent.listening()
    steps = await agent.client.hook()
    assert steps[-1].name == "hook"
    assert "got POST /awake" in (await agent.client.logs()).lines


async def test_a_failing_hook_is_reported_and_does_not_fail_the_resume(agent: Agent) -> None:
    await agent.start(serve(ANYWHERE), env={"BURROW_AFTER_RESUME": "exit 5"})
    await agent.listening()
    steps = await agent.client.hook()
    assert steps[-1].name == "hook_failed"
    assert (await agent.client.logs()).lines[-1].startswith("[burrow] after_resume ended with 5")


async def test_a_hook_that_hangs_is_cut_off(agent: Agent) -> None:
    await agent.start(serve(ANYWHERE), env={"BURROW_AFTER_RESUME": "sleep 60"})
    await agent.listening()
    steps = await agent.client.hook()
    assert steps[-1].name == "hook_failed"
    assert steps[-1].ms < 4000


async def test_an_app_that_names_a_hook_is_marked_for_the_responder(agent: Agent) -> None:
    await agent.start(serve(ANYWHERE), env={"BURROW_AFTER_RESUME": "/awake"})
    assert os.access(agent.folder / "hook", os.X_OK)


async def test_an_app_without_a_hook_is_not_marked_and_asking_changes_nothing(agent: Agent) -> None:
    await agent.start(serve(ANYWHERE))
    assert not (agent.folder / "hook").exists()
    assert await agent.client.hook() == ()


async def test_exec_returns_code_and_output(agent: Agent) -> None:
    result = await agent.client.exec("echo out; echo err >&2; exit 4")
    assert (result.exit_code, result.output, result.timed_out) == (4, "out\nerr\n", False)


async def test_exec_ends_at_its_deadline(agent: Agent) -> None:
    result = await agent.client.exec("echo begun; sleep 60", timeout_s=0.5)
    assert (result.timed_out, result.output) == (True, "begun\n")


async def test_stop_lets_the_app_finish(agent: Agent) -> None:
    await agent.start("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    while (await agent.client.logs()).lines != ("up",):
        await asyncio.sleep(0.05)
    await agent.client.stop()
    status = await agent.client.status()
    assert (status.phase, status.exit_code) == ("stopped", 0)
    assert (await agent.client.logs()).lines[-1] == "bye"


async def test_stop_kills_an_app_that_does_not_listen_to_it(agent: Agent) -> None:
    await agent.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    while (await agent.client.logs()).lines != ("up",):
        await asyncio.sleep(0.05)
    await agent.client.stop(grace_s=0.3)
    assert (await agent.client.status()).exit_code == -9


async def test_sync_drops_caches_only_when_asked(agent: Agent) -> None:
    await agent.client.sync()
    await agent.client.sync(drop_caches=True)
    assert agent.notes == ["drop_caches"]


async def test_unknown_and_broken_requests_are_answered(agent: Agent) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
    writer.write(b'{"op":"fly"}\nnot json\n[1]\n{"op":"start"}\n{"op":"hello"}\n')
    answers = [await reader.readline() for _ in range(5)]
    writer.close()
    assert [b'"ok":true' in answer for answer in answers] == [False, False, False, False, True]


async def test_a_peer_other_than_the_host_is_not_listened_to(agent: Agent) -> None:
    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", agent.port), 5, source_address=("127.0.0.9", 0)) as sock:
            sock.sendall(b'{"op":"hello"}\n')
            try:
                return sock.recv(100)
            except ConnectionResetError:
                return b""

    assert await asyncio.to_thread(ask) == b""


async def test_an_agent_that_was_killed_starts_the_app_again(agent: Agent) -> None:
    port = await agent.start(serve(ANYWHERE))
    await agent.listening()
    agent.process.kill()
    agent.process.wait()
    second = launch(agent.folder)
    try:
        assert second.stdout is not None
        again = Agent(agent.folder, int(second.stdout.readline()), second)
        assert (await again.listening()).port == port
    finally:
        end(second, agent.folder)
