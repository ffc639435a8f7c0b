from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hosts.disk import clone as module
from hosts.disk.clone import clone, data_ranges

MIB = 1 << 20


def sparse_file(path: Path) -> bytes:
    with path.open("wb") as file:
        file.truncate(64 * MIB)
        for offset in (0, 5 * MIB + 17, 63 * MIB):
            file.seek(offset)
            file.write(f"at {offset}".encode() * 100)
    return path.read_bytes()


def test_a_clone_equals_its_source_and_stays_sparse(tmp_path: Path) -> None:
    content = sparse_file(tmp_path / "source")
    clone(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    assert (tmp_path / "copy").stat().st_blocks * 512 < MIB
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


def test_it_is_as_good_where_the_kernel_cannot_copy_for_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(*_: int) -> int:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "copy_file_range", not_here)
    content = sparse_file(tmp_path / "source")
    clone(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content


@pytest.mark.parametrize("size", [0, 1, 4096, MIB + 1])
def test_any_size(tmp_path: Path, size: int) -> None:
    (tmp_path / "source").write_bytes(b"x" * size)
    clone(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"x" * size


def test_it_never_writes_over_a_file_or_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "link").symlink_to("elsewhere")
    for target in ("there", "link"):
        with pytest.raises(FileExistsError):
            clone(tmp_path / "source", tmp_path / target)
    with pytest.raises(OSError, match="symbolic"):
        clone(tmp_path / "link", tmp_path / "copy")
    assert (tmp_path / "there").read_bytes() == b"old"
    assert not (tmp_path / "elsewhere").exists()


def test_a_clone_that_fails_half_way_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    sparse_file(tmp_path / "source")
    monkeypatch.setattr(module, "_reflink", lambda *_: False)
    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OSError, match="No space left"):
        clone(tmp_path / "source", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_hole_at_the_end_is_no_data(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"x")
        file.truncate(MIB)
        file.flush()
        assert data_ranges(file.fileno(), MIB) == [(0, 4096)]
