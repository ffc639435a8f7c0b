"""Snapshots of a real guest: what it remembers, what its disk holds, and a disk with no room."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.snapshots import checkpoint, pair
from hosts.snapshots.files import SnapshotFailed, SnapshotRefused
from hosts.vmm import qemu
from hosts.vmm.process import record_of
from hosts.vmm.protocol import Vm
from tests.hosts.tiny_machine import MEMORY_MIB, MakeMachine, TinyMachine

pytestmark = [pytest.mark.vm, pytest.mark.root]

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
# Memory, disk and room for one or two states of some hundred KiB: what is left is filled by the test.
SMALL_DISK_MIB = MEMORY_MIB + 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MIB}M", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


async def wake(machine: TinyMachine) -> None:
    vm = await pair.resume(machine.qemu, machine.config, machine.files, machine.identity)
    machine.vms.append(vm)  # type: ignore[arg-type]
    await vm.resume()


async def sleep(machine: TinyMachine) -> None:
    await pair.suspend(machine.vm, machine.files, machine.identity, now_ms=NOW_MS)


async def test_it_goes_on_counting_over_sleeps_and_back_at_its_checkpoint(make_machine: MakeMachine) -> None:
    machine = await make_machine()
    files = machine.files
    await machine.boot()
    assert await machine.count() == 1
    await machine.ask("echo first > /data/file; sync")

    for expected in (2, 3):
        record = machine.vm.record
        await sleep(machine)
        assert record_of(record.pid) is None
        await pair.record_memory_hash(files)
        assert files.memory.stat().st_blocks * 512 < MEMORY_MIB * MIB * 0.9
        await wake(machine)
        assert await machine.count() == expected
    with pytest.raises(SnapshotRefused):
        await pair.resume(machine.qemu, machine.config, files, machine.identity)

    await checkpoint.checkpoint(machine.vm, files, machine.identity, now_ms=NOW_MS)
    assert await machine.count() == 4, "it goes on"
    await machine.ask("echo second > /data/file; sync")

    await machine.vm.kill()
    await checkpoint.restore(files, machine.identity, uid=machine.config.uid)
    await wake(machine)
    assert await machine.count() == 4, "again, from three"
    assert await machine.ask("cat /data/file") == "first"
    assert checkpoint.has_checkpoint(files)


async def test_a_resume_that_never_got_to_its_vcpus_can_be_repeated(make_machine: MakeMachine) -> None:
    machine = await make_machine()
    await machine.boot()
    assert await machine.count() == 1
    await sleep(machine)
    vm = await machine.load()  # here the agent dies, and its QEMU with it
    await vm.kill()

    async def not_noted(_: Vm) -> None:
        raise OSError("the agent could not write its record")

    with pytest.raises(OSError, match="could not write"):
        await pair.resume(machine.qemu, machine.config, machine.files, machine.identity, loaded=not_noted)
    await wake(machine)
    assert await machine.count() == 2


async def test_a_full_disk_costs_nothing(make_machine: MakeMachine, small_disk: Path) -> None:
    machine = await make_machine(folder=small_disk)
    await machine.boot()
    assert await machine.count() == 1
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free_bytes(small_disk))

    with pytest.raises(SnapshotFailed):
        await sleep(machine)
    with pytest.raises(SnapshotFailed):
        await checkpoint.checkpoint(machine.vm, machine.files, machine.identity, now_ms=NOW_MS)
    assert not machine.vm.exited.is_set()
    assert not pair.has_pair(machine.files)
    await machine.vm.resume()
    assert await machine.count() == 2

    filler.unlink()
    await sleep(machine)
    await wake(machine)
    assert await machine.count() == 3


async def test_a_guest_whose_disk_cannot_grow_waits_for_room(
    make_machine: MakeMachine, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu, "FULL_DISK_RETRY_S", 0.2)
    machine = await make_machine(folder=small_disk)
    await machine.boot()
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free_bytes(small_disk) - MIB)
    # Not zeros: QEMU and the file system would not write those.
    await machine.ask(
        "(dd if=/dev/urandom of=/data/big bs=64k count=64; sync; echo done > /finished) > /dev/null 2>&1 &"
    )
    async with asyncio.timeout(30):
        while await machine.vm.is_running():
            await asyncio.sleep(0.05)

    filler.unlink()
    assert await machine.ask("while [ ! -e /finished ]; do sleep 0.1; done; wc -c < /data/big") == str(64 << 16)
    assert await machine.vm.is_running()
