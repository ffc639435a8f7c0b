"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hosts.agent.durable import Scribe, make_folder, replace_file


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old" * 1000)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def no_space(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_what_an_earlier_crash_left_beside_it_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".file.new").write_bytes(b"half of something longer")
    replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_folder_may_be_there_already(tmp_path: Path) -> None:
    make_folder(tmp_path / "a")
    (tmp_path / "a" / "kept").touch()
    make_folder(tmp_path / "a")
    assert (tmp_path / "a" / "kept").exists()


async def test_a_scribe_brings_back_results_and_errors() -> None:
    scribe = Scribe()
    assert await scribe.run(int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await scribe.run(int, "x")
    scribe.close()
