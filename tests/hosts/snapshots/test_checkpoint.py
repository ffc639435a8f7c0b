"""A checkpoint is a copy that outlives what the machine does next."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.snapshots import checkpoint, pair
from hosts.snapshots.files import SnapshotFailed, SnapshotFiles, SnapshotRefused
from tests.hosts.snapshots.still_vm import IDENTITY, NOW_MS, StillVm, machine_files

UID = 12345


async def checkpointed(tmp_path: Path) -> SnapshotFiles:
    files = machine_files(tmp_path / "machine")
    await checkpoint.checkpoint(StillVm(), files, IDENTITY, now_ms=NOW_MS)
    return files


def goes_on(files: SnapshotFiles) -> None:
    files.disk.write_bytes(b"a later disk")
    with files.memory.open("r+b") as memory:
        memory.seek(300_000)
        memory.write(b"something else altogether")


@pytest.mark.parametrize("running", [True, False])
async def test_the_vm_is_afterwards_what_it_was_before(tmp_path: Path, *, running: bool) -> None:
    files = machine_files(tmp_path / "machine")
    vm = StillVm(running=running)
    told: list[bool] = []

    async def cloned() -> None:
        told.append(vm.running)

    await checkpoint.checkpoint(vm, files, IDENTITY, now_ms=NOW_MS, cloned=cloned)
    assert told == [running], "it ran on before the copy was made durable"
    assert vm.running is running
    assert "kill" not in vm.calls
    assert checkpoint.has_checkpoint(files)
    assert not pair.has_pair(files)


@pytest.mark.root
async def test_it_can_be_restored_again_and_again(tmp_path: Path) -> None:
    files = await checkpointed(tmp_path)
    for _ in range(2):
        goes_on(files)
        await checkpoint.restore(files, IDENTITY, uid=UID)
        assert files.disk.read_bytes() == b"a disk"
        assert b"what the guest remembers" in files.memory.read_bytes()
        assert files.memory.stat().st_uid == files.disk.stat().st_uid == UID
        await pair.verify(files, IDENTITY)
        await pair.spend(files)
    assert {path.name for path in files.folder.iterdir()} == {"memory", "disk", "manifest.json", "checkpoint"}


@pytest.mark.root
async def test_a_restored_pair_is_newer_than_any_before(tmp_path: Path) -> None:
    files = await checkpointed(tmp_path)
    suspended = await pair.suspend(StillVm(), files, IDENTITY, now_ms=NOW_MS)
    restored = await checkpoint.restore(files, IDENTITY, uid=UID)
    assert restored.generation > suspended.generation


async def test_a_new_one_takes_the_place_of_the_old(tmp_path: Path) -> None:
    files = await checkpointed(tmp_path)
    goes_on(files)
    await checkpoint.checkpoint(StillVm(b"later state"), files, IDENTITY, now_ms=NOW_MS)
    assert files.checkpoint.disk.read_bytes() == b"a later disk"
    assert files.checkpoint.state.read_bytes() == b"later state"
    assert not (files.folder / ".checkpoint.new").exists()


async def test_one_that_fails_leaves_the_old_one_and_a_running_vm(tmp_path: Path) -> None:
    files = await checkpointed(tmp_path)
    vm = StillVm(fails="save")
    with pytest.raises(SnapshotFailed):
        await checkpoint.checkpoint(vm, files, IDENTITY, now_ms=NOW_MS)
    assert vm.running
    assert not (files.folder / ".checkpoint.new").exists()
    await pair.verify(files.checkpoint, IDENTITY)


async def test_a_disk_that_is_full_while_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = await checkpointed(tmp_path)

    def full(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "clone", full)
    vm = StillVm()
    with pytest.raises(SnapshotFailed, match="No space left"):
        await checkpoint.checkpoint(vm, files, IDENTITY, now_ms=NOW_MS)
    assert vm.running
    await pair.suspend(vm, files, IDENTITY, now_ms=NOW_MS)
    with pytest.raises(OSError, match="No space left"):
        await checkpoint.restore(files, IDENTITY, uid=UID)
    monkeypatch.undo()
    await pair.verify(files, IDENTITY)
    await pair.verify(files.checkpoint, IDENTITY)


async def test_a_damaged_one_is_refused_before_anything_changes(tmp_path: Path) -> None:
    files = await checkpointed(tmp_path)
    goes_on(files)
    files.checkpoint.disk.write_bytes(b"tampered")
    with pytest.raises(SnapshotRefused):
        await checkpoint.restore(files, IDENTITY, uid=UID)
    assert files.disk.read_bytes() == b"a later disk"


async def test_what_a_dead_agent_left_half_made_is_removed(tmp_path: Path) -> None:
    files = await checkpointed(tmp_path)
    for name in (".checkpoint.new", ".restore.new"):
        (files.folder / name).mkdir()
        (files.folder / name / "memory").touch()
    files.state_being_written.touch()
    checkpoint.reclaim(files)
    assert {path.name for path in files.folder.iterdir()} == {"memory", "disk", "checkpoint"}
    await pair.verify(files.checkpoint, IDENTITY)


async def test_it_is_dropped_whole(tmp_path: Path) -> None:
    files = await checkpointed(tmp_path)
    checkpoint.drop_checkpoint(files)
    checkpoint.drop_checkpoint(files)
    assert not checkpoint.has_checkpoint(files)
    assert not files.checkpoint.folder.exists()
