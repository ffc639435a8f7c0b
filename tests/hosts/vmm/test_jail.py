"""The jail from outside, and from inside: a program of ours runs in QEMU's place and tries to get out."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hosts.agent.http import Answer, ApiServer, Request
from hosts.vmm import jail as module
from hosts.vmm.arguments import Accelerator
from hosts.vmm.cgroups import Cgroups
from hosts.vmm.jail import Jail, libraries, prepare
from hosts.vmm.launch import launch
from hosts.vmm.protocol import Disk, VmConfig
from tests import environment
from tests.hosts.tiny_machine import MakeMachine, TinyMachine
from tests.hosts.vmm import intruder

PYTHON = Path("/usr/bin/python3")
TOOL_TIMEOUT_S = 30
INTRUDER_TIMEOUT_S = 60.0
POLL_S = 0.05


def test_the_jail_holds_qemu_and_what_it_loads_and_is_made_once(tmp_path: Path) -> None:
    jail = prepare(tmp_path)
    files = {path.name for path in jail.root.rglob("*") if path.is_file()}
    assert {"qemu-system-x86_64", "setpriv", "bios-microvm.bin"} <= files
    assert not {"sh", "bash", "bwrap", "python3"} & files
    (tmp_path / "of-an-older-qemu").mkdir()
    assert prepare(tmp_path) == jail
    assert [path.name for path in tmp_path.iterdir()] == [jail.root.name]
    assert all(path.stat().st_mode & 0o005 for path in jail.root.rglob("*"))
    assert (
        jail.qemu_version
        in subprocess.run([module.QEMU, "--version"], capture_output=True, text=True, check=True).stdout
    )


def with_intruder(jail: Jail, root: Path, targets: dict[str, list[str]]) -> Jail:
    """The same jail, but that our script has QEMU's name and finds a Python to run it."""
    shutil.copytree(jail.root, root)
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.run(
        [PYTHON, "-ISc", ask], capture_output=True, text=True, check=True, timeout=TOOL_TIMEOUT_S
    ).stdout.strip()
    library = Path(f"/usr/lib/python{version}")
    unneeded = shutil.ignore_patterns("test", "idlelib", "__pycache__", "config-*")
    shutil.copytree(library, root / library.relative_to("/"), ignore=unneeded)
    wanted = {PYTHON: PYTHON.resolve()}
    for program in (PYTHON, *(library / "lib-dynload").glob("_[cs]*.so")):
        wanted |= libraries(program)
    for to, at in wanted.items():
        (root / to.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(at, root / to.relative_to("/"))
    (root / "usr/bin/python3").chmod(0o755)
    script = root / "usr/bin/qemu-system-x86_64"
    script.write_text(f"#!{PYTHON} -IS\n" + Path(intruder.__file__).read_text())
    (root / intruder.TARGETS.removeprefix("/")).write_text(json.dumps(targets))
    return replace(jail, root=root)


def what_it_found(jail: Jail, config: VmConfig, instance: str) -> dict[str, str]:
    """Start the intruder as every machine's QEMU is started, and read its answer to the end."""
    cgroups = Cgroups.detect(instance)
    launched = launch(config, jail, Accelerator.TCG, cgroups, instance=instance, incoming=False)
    said = b""
    deadline = time.monotonic() + INTRUDER_TIMEOUT_S
    try:
        while True:
            assert time.monotonic() < deadline, said
            try:
                piece = os.read(launched.errors, 1 << 16)
            except BlockingIOError:
                time.sleep(POLL_S)
                continue
            if not piece:
                return dict(json.loads(said))
            said += piece
    finally:
        os.close(launched.errors)
        os.waitpid(launched.jailer_pid, 0)
        cgroups.remove(config.name)


@dataclass(frozen=True)
class Foreign:
    """What is on this host and none of a machine's business."""

    targets: dict[str, list[str]]

    @classmethod
    async def gather(cls, other: TinyMachine, stack: AsyncExitStack, *, servers: list[Path], folder: Path) -> Foreign:
        """Start what is not there yet."""
        agent = ApiServer(folder / "agent.sock", _never)
        await agent.start()
        stack.push_async_callback(agent.close)
        abstract = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        abstract.bind(f"\0{other.config.folder}")
        abstract.listen()
        addresses = []
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            listener = stack.enter_context(closing(socket.socket(family)))
            listener.bind((host, 0))
            listener.listen()
            addresses.append(f"{host}:{listener.getsockname()[1]}")
        vmm, test = other.vm.record.pid, os.getpid()
        secrets = [str(path) for path in (environment.VAR / "secrets").iterdir()]
        return cls(
            {
                "files": [
                    *(str(other.files.memory), str(other.files.disk), *secrets, "/etc/shadow"),
                    *(f"/proc/{vmm}/mem", f"/proc/{test}/environ", f"/proc/{vmm}/maps"),
                ],
                "sockets": [
                    *(str(other.config.folder / name) for name in ("qmp.sock", "console.sock")),
                    *(str(folder / "agent.sock"), *map(str, servers), f"@{other.config.folder}"),
                ],
                "addresses": addresses,
                "processes": [str(vmm), str(test)],
            }
        )


async def _never(_request: Request) -> Answer:
    raise AssertionError("somebody asked the agent")


@pytest.mark.vm
@pytest.mark.root
async def test_a_vmm_that_was_taken_over_gets_nowhere(
    make_machine: MakeMachine,
    instance: str,
    tmp_path: Path,
    redis_socket: Path,
    django_db_modify_db_settings: None,
) -> None:
    other, machine = await make_machine("other", slot=2), await make_machine("own")
    await other.start()
    postgres = environment.VAR / "sockets/.s.PGSQL.5432"
    for name in ("base", "release"):
        (tmp_path / name).write_bytes(b"image" * 1000)
        (tmp_path / name).chmod(0o666)  # not the rights of the file, the jail has to refuse
    images = tuple(Disk(name, tmp_path / name, read_only=True) for name in ("base", "release"))
    config = replace(machine.config, disks=(*machine.config.disks, *images))
    async with AsyncExitStack() as stack:
        foreign = await Foreign.gather(other, stack, servers=[redis_socket, postgres], folder=tmp_path)
        own = {"own": ["/machine/memory", "/disks/data"]}
        shared = {
            "images": ["/disks/base", "/disks/release", "/machine/kernel", "/machine/initramfs", str(module.QEMU)],
            "folders": ["/", "/machine", "/disks", "/dev", "/usr", "/usr/bin", "/tmp", "/run", "/proc"],
        }
        for name, attempt in intruder.attempts({**foreign.targets, "own": [], "images": [], "folders": []}):
            if name.split()[0] in {"read", "connect", "signal", "hold"}:
                attempt()  # root out here can do each, so a refusal in there is one
        jail = with_intruder(prepare(tmp_path / "jail"), tmp_path / "broken", {**foreign.targets, **own, **shared})
        found = await asyncio.to_thread(what_it_found, jail, config, instance)

    assert found.pop("descriptors") == "0,1,2,3,4,5,6"
    assert found.pop("special files") == "/dev/null"
    assert {name for name, outcome in found.items() if outcome == "done"} == {
        "own /machine/memory",
        "own /disks/data",
    }
    assert len(found) > 70, found
    for name in ("base", "release"):
        assert (tmp_path / name).read_bytes() == b"image" * 1000
