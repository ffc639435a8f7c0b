"""What is written in which order, and what is refused before any VMM starts."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.snapshots import pair
from hosts.snapshots.files import SnapshotFailed, SnapshotFiles, SnapshotRefused, read_manifest, write_manifest
from hosts.vmm.protocol import VmmError
from hosts.wire.manifest import Manifest
from tests.hosts.snapshots.still_vm import IDENTITY, NOW_MS, StillVm, machine_files


async def asleep(tmp_path: Path) -> SnapshotFiles:
    files = machine_files(tmp_path / "machine")
    await pair.suspend(StillVm(), files, IDENTITY, now_ms=NOW_MS)
    return files


async def refusal(files: SnapshotFiles) -> str:
    with pytest.raises(SnapshotRefused) as refused:
        await pair.verify(files, IDENTITY)
    return refused.value.reason


def rewrite(files: SnapshotFiles, change: Callable[[Manifest], Manifest]) -> None:
    manifest = read_manifest(files)
    assert manifest is not None
    write_manifest(files, change(manifest))


async def test_a_suspended_machine_is_verified_any_number_of_times(tmp_path: Path) -> None:
    files = await asleep(tmp_path)
    assert pair.has_pair(files)
    assert await pair.verify(files, IDENTITY) == await pair.verify(files, IDENTITY)


async def test_the_process_ends_only_after_everything_is_in_place(tmp_path: Path) -> None:
    files = machine_files(tmp_path / "machine")
    vm = StillVm()
    at_kill: list[bool] = []

    async def kill() -> None:
        await pair.verify(files, IDENTITY)
        at_kill.append(pair.has_pair(files))

    vm.kill = kill  # type: ignore[method-assign]
    await pair.suspend(vm, files, IDENTITY, now_ms=NOW_MS)
    assert at_kill == [True]
    assert vm.calls == ["pause", "save"]


async def test_a_process_that_ends_slowly_costs_no_memory(tmp_path: Path) -> None:
    files = machine_files(tmp_path / "machine")
    await pair.suspend(StillVm(fails="kill"), files, IDENTITY, now_ms=NOW_MS)
    await pair.verify(files, IDENTITY)


async def test_a_suspend_that_fails_leaves_no_pair(tmp_path: Path) -> None:
    files = machine_files(tmp_path / "machine")
    vm = StillVm(fails="save")
    with pytest.raises(SnapshotFailed):
        await pair.suspend(vm, files, IDENTITY, now_ms=NOW_MS)
    assert not pair.has_pair(files)
    assert not files.state_being_written.exists()
    assert not vm.exited.is_set()


async def test_a_manifest_that_cannot_be_written_leaves_the_vm_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = machine_files(tmp_path / "machine")
    vm = StillVm()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SnapshotFailed, match="No space left"):
        await pair.suspend(vm, files, IDENTITY, now_ms=NOW_MS)
    monkeypatch.undo()
    assert "kill" not in vm.calls
    assert not pair.has_pair(files)
    assert {path.name for path in files.folder.iterdir()} <= {"memory", "disk", "manifest.json"}
    await pair.suspend(vm, files, IDENTITY, now_ms=NOW_MS)
    await pair.verify(files, IDENTITY)


async def test_a_spent_pair_cannot_be_used_again(tmp_path: Path) -> None:
    files = await asleep(tmp_path)
    await pair.spend(files)
    await pair.spend(files)
    assert not pair.has_pair(files)
    assert await refusal(files) == "snapshot:state_missing"


async def test_generations_count_up(tmp_path: Path) -> None:
    files = machine_files(tmp_path / "machine")
    first = await pair.suspend(StillVm(), files, IDENTITY, now_ms=NOW_MS)
    await pair.spend(files)
    second = await pair.suspend(StillVm(b"other state"), files, IDENTITY, now_ms=NOW_MS)
    assert (first.generation, second.generation) == (1, 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def replaced(path: Path) -> None:
    """By a copy of itself, as from a backup of another instant."""
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("state", flip, "state_hash"),
        ("state", truncate, "state_hash"),
        ("state", Path.unlink, "state_missing"),
        ("state", linked, "state_missing"),
        ("memory", flip, "memory_changed"),
        ("memory", truncate, "memory_changed"),
        ("memory", replaced, "memory_changed"),
        ("memory", Path.unlink, "memory_missing"),
        ("memory", linked, "memory_missing"),
        ("disk", flip, "disk_changed"),
        ("disk", truncate, "disk_changed"),
        ("disk", replaced, "disk_changed"),
        ("disk", Path.unlink, "disk_missing"),
        ("manifest.json", flip, "manifest_unreadable"),
        ("manifest.json", truncate, "manifest_unreadable"),
        ("manifest.json", Path.unlink, "no_manifest"),
    ],
)
async def test_damage_is_refused(tmp_path: Path, name: str, damage: Callable[[Path], None], reason: str) -> None:
    files = await asleep(tmp_path)
    damage(files.folder / name)
    found = await refusal(files)
    # A flipped bit may leave JSON that says something else instead of no JSON.
    assert found == f"snapshot:{reason}" or (name == "manifest.json" and damage is flip)


async def test_state_and_memory_of_two_instants_are_refused(tmp_path: Path) -> None:
    files = await asleep(tmp_path)
    shutil.copy2(files.state, tmp_path / "first-state")
    await pair.spend(files)
    with files.memory.open("r+b") as memory:
        memory.write(b"goes on")
    await pair.suspend(StillVm(b"state of the second sleep"), files, IDENTITY, now_ms=NOW_MS)
    (tmp_path / "first-state").replace(files.state)
    assert await refusal(files) == "snapshot:state_hash"


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("machine_id", "machine"),
        ("vmm_version", "vmm"),
        ("arguments_sha256", "arguments"),
        ("base", "base"),
        ("image", "image"),
    ],
)
async def test_what_was_taken_with_something_else_is_refused(tmp_path: Path, field: str, reason: str) -> None:
    files = await asleep(tmp_path)
    rewrite(files, lambda manifest: replace(manifest, **{field: "something else"}))  # type: ignore[arg-type]
    assert await refusal(files) == f"snapshot:{reason}"


async def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    files = await asleep(tmp_path)
    rewrite(files, lambda manifest: replace(manifest, format=2))
    assert await refusal(files) == "snapshot:format"


async def test_memory_a_vmm_still_has_is_waited_for_and_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await asleep(tmp_path)
    with files.memory.open("rb") as memory:
        fcntl.flock(memory, fcntl.LOCK_EX)
        asyncio.get_running_loop().call_later(0.1, fcntl.flock, memory, fcntl.LOCK_UN)
        await pair.verify(files, IDENTITY)
        fcntl.flock(memory, fcntl.LOCK_EX)
        monkeypatch.setattr(pair, "IN_USE_WAIT_S", 0.02)
        with pytest.raises(VmmError):
            await pair.verify(files, IDENTITY)
    await pair.verify(files, IDENTITY)


@pytest.mark.parametrize("name", ["state_sha256", "stamp", "read_manifest"])
async def test_a_host_short_of_descriptors_says_nothing_about_the_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files = await asleep(tmp_path)

    def short(_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(pair, name, short)
    with pytest.raises(OSError, match="Too many open files"):
        await pair.verify(files, IDENTITY)
    monkeypatch.undo()
    await pair.verify(files, IDENTITY)


async def test_after_a_reboot_only_hashed_memory_is_believed(tmp_path: Path) -> None:
    files = await asleep(tmp_path)
    rewrite(files, lambda manifest: replace(manifest, host_boot_id="the boot before"))
    assert await refusal(files) == "snapshot:memory_unhashed"

    files = await asleep(tmp_path)
    await pair.record_memory_hash(files)
    rewrite(files, lambda manifest: replace(manifest, host_boot_id="the boot before"))
    await pair.verify(files, IDENTITY)

    stamp = files.memory.stat()
    with files.memory.open("r+b") as memory:
        memory.seek(300_000)
        memory.write(b"W")
    os.utime(files.memory, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert await refusal(files) == "snapshot:memory_hash"


async def test_a_hash_that_comes_too_late_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = await asleep(tmp_path)
    before = files.manifest.read_bytes()
    hashing, going_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow_sync(_: Path) -> None:
        loop.call_soon_threadsafe(hashing.set)
        asyncio.run_coroutine_threadsafe(going_on.wait(), loop).result(5)

    monkeypatch.setattr(pair, "sync", slow_sync)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pair.record_memory_hash(files))
        await hashing.wait()
        task.cancel()
        await asyncio.wait([task])  # does not wait for the disk
        going_on.set()
    monkeypatch.undo()
    await pair.record_memory_hash(SnapshotFiles(tmp_path / "nothing here"))  # the hasher is idle again after this
    assert files.manifest.read_bytes() == before


async def test_a_disk_that_is_slow_over_the_manifest_holds_up_the_canceller_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = await asleep(tmp_path)
    noting, going_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    real = pair.sync  # type: ignore[attr-defined]  # it is replaced where it is used

    def slow_sync(path: Path) -> None:
        if path == files.folder:
            loop.call_soon_threadsafe(noting.set)
            going_on.wait(5)
        real(path)

    monkeypatch.setattr(pair, "sync", slow_sync)
    task = loop.create_task(pair.record_memory_hash(files))
    await noting.wait()
    task.cancel()
    await asyncio.wait([task], timeout=0.05)  # the loop goes on meanwhile
    assert not task.done()
    going_on.set()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    await pair.verify(files, IDENTITY)


async def test_what_holds_nothing_is_given_back_with_the_hash(tmp_path: Path) -> None:
    files = machine_files(tmp_path / "machine")
    content = files.memory.read_bytes()
    files.memory.write_bytes(content)
    assert allocated(files.memory) >= 1 << 20
    await pair.suspend(StillVm(), files, IDENTITY, now_ms=NOW_MS)
    await pair.record_memory_hash(files)
    assert allocated(files.memory) < 1 << 18
    assert files.memory.read_bytes() == content
    await pair.verify(files, IDENTITY)


async def test_another_time_stamp_on_hashed_memory_is_looked_into(tmp_path: Path) -> None:
    files = await asleep(tmp_path)
    await pair.record_memory_hash(files)
    os.utime(files.memory)
    await pair.verify(files, IDENTITY)
    flip_at(files.memory, 300_000)
    assert await refusal(files) == "snapshot:memory_hash"


def flip_at(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512
