from __future__ import annotations

from pathlib import Path

import pytest

from hosts.snapshots.files import SnapshotFiles, SnapshotRefused, read_manifest, stamp, write_manifest
from hosts.wire.manifest import MANIFEST_FORMAT, FileStamp, Manifest
from hosts.wire.spec import ImageDigest, MachineId

STAMP = FileStamp(inode=1, size_bytes=2, mtime_ns=3)
MANIFEST = Manifest(
    format=MANIFEST_FORMAT,
    machine_id=MachineId("a" * 32),
    generation=7,
    taken_at_ms=1,
    host_boot_id="boot",
    vmm_version="qemu",
    arguments_sha256="b" * 64,
    base="c" * 64,
    image=ImageDigest("d" * 64),
    state_sha256="e" * 64,
    state_bytes=9,
    memory=STAMP,
    memory_sha256="",
    disk=STAMP,
)


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    assert read_manifest(files) is None
    write_manifest(files, MANIFEST)
    assert read_manifest(files) == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"format": "1"}'])
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    files = SnapshotFiles(tmp_path)
    files.manifest.write_bytes(content)
    with pytest.raises(SnapshotRefused) as refused:
        read_manifest(files)
    assert refused.value.reason == "snapshot:manifest_unreadable"


def test_a_stamp_changes_with_every_write_truncation_and_replacement(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.write_bytes(b"one")
    stamps = {stamp(path)}
    path.write_bytes(b"two!")
    stamps.add(stamp(path))
    (tmp_path / "other").write_bytes(b"two!")
    (tmp_path / "other").rename(path)
    stamps.add(stamp(path))
    assert len(stamps) == 3


def test_a_stamp_is_of_the_link_itself(tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("memory")
    assert stamp(tmp_path / "link") != stamp(tmp_path / "memory")
