"""A real guest from kernel to app: booted from the built images, started, asked, resumed, and probed from inside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from hosts.guest.client import Listening
from hosts.wire.spec import Process
from tests.environment import ROOT
from tests.hosts.real_host import Machine, real_host

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

APPS = ROOT / "tests/apps"
SLOT = 41


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def release_of(app: Path, folder: Path) -> Path:
    """A release image as a builder makes it, of an app that needs no building."""
    image = folder / "release.erofs"
    (folder / "pack").mkdir()
    subprocess.run(["cp", "-r", app, folder / "pack/app"], check=True, timeout=30)
    subprocess.run(
        ["mkfs.erofs", "-zlz4", "--force-uid=1000", "--force-gid=1000", image, folder / "pack"],
        check=True,
        timeout=30,
        capture_output=True,
    )
    image.chmod(0o444)
    return image


async def fetch(machine: Machine, port: int) -> bytes:
    sock = await machine.namespace.connect(port, 10)
    reader, writer = await asyncio.open_connection(sock=sock)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


async def as_app(machine: Machine, command: str) -> str:
    return (await machine.guest.exec(command)).output.strip()


async def test_a_guest_boots_serves_resumes_and_keeps_its_app_in_bounds(tmp_path: Path) -> None:
    async with (
        real_host(tmp_path) as host,
        host.machine(release_of(APPS / "python-loopback", tmp_path), slot=SLOT) as machine,
    ):
        guest = machine.guest
        await guest.hello(120)
        await guest.start(
            Process(command="python main.py"), hostname="sample", clock_ms=wall_ms, entropy=os.urandom(32)
        )

        # It listens on 127.0.0.1:5000 and is served all the same.
        found = await guest.await_listening(60)
        assert isinstance(found, Listening), found
        assert found.port == 5000
        assert await fetch(machine, 5000) == b"from loopback\n"

        # The clock is the host's, and two resumes from one state differ in randomness by what they were given.
        await guest.resume(clock_ms=lambda: 2_000_000_000_000, entropy=os.urandom(32))
        assert (await as_app(machine, "date -u +%Y")) == "2033"
        await guest.resume(clock_ms=wall_ms, entropy=os.urandom(32))
        assert abs(float(await as_app(machine, "date +%s.%N")) - time.time()) < 5

        # What the app may not do: read, see or signal the agent, talk to it, become root, write the layers below.
        assert await as_app(machine, "id -u; hostname") == "1000\nsample"
        assert "Permission denied" in await as_app(machine, "ls /run/burrow")
        assert await as_app(machine, "ls -d /proc/1 2>/dev/null || echo hidden") == "hidden"
        assert await as_app(machine, "kill -9 1 2>/dev/null || echo refused") == "refused"
        ask = "import socket; s=socket.create_connection(('172.31.255.2',1),5); s.sendall(b'{}\\n'); print(s.recv(9))"
        assert await as_app(machine, f'python3 -c "{ask}" 2>&1 | tail -n 1') in {
            "b''",
            "ConnectionResetError: [Errno 104] Connection reset by peer",
        }
        assert "nosuid" in await as_app(machine, "grep ' / ' /proc/mounts")
        assert await as_app(machine, "touch /usr/bin/x 2>/dev/null || echo refused") == "refused"
        # And what it may: write its own files, listen on port 80.
        assert await as_app(machine, "touch /app/x /tmp/x ~/x && echo written") == "written"
        listen = "import socket; socket.create_server(('0.0.0.0', 80)); print('listens')"
        assert await as_app(machine, f'python3 -c "{listen}"') == "listens"

        # Nothing of what an app removed, or a process that ended knew, stays in the memory that is kept.
        write = "open('/tmp/x', 'wb').write((b'this is ' + b'a canary') * 500000)"
        await as_app(machine, f'python3 -c "{write}"')
        memory = host.folder / f"machine-{SLOT}" / "memory"
        assert b"this is a canary" * 100 in memory.read_bytes()
        await as_app(machine, "rm /tmp/x")
        await guest.sync(drop_caches=True)
        assert b"this is a canary" not in memory.read_bytes()
        assert not machine.vm.exited.is_set()


async def test_a_guest_without_its_release_ends_instead_of_half_booting(tmp_path: Path) -> None:
    broken = tmp_path / "release.erofs"
    broken.write_bytes(bytes(65536))
    broken.chmod(0o444)
    async with real_host(tmp_path) as host, host.machine(broken, slot=SLOT) as machine:
        async with asyncio.timeout(120):
            await machine.vm.exited.wait()
        assert "burrow-init: release image does not mount" in machine.vm.console_tail()
