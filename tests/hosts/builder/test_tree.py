"""Looking at a stranger's files: pointers and empty submodules are named, links are never followed."""

from __future__ import annotations

import os
from pathlib import Path

from hosts.builder.tree import empty_submodules, lfs_pointers, listing, read_small, shown

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"


def test_lists_files_but_not_installed_ones(tmp_path: Path) -> None:
    for name in ("a.txt", "src/b.txt", "node_modules/x/c.js", "src/node_modules/d.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert listing(tmp_path) == ["a.txt", "src/b.txt"]


def test_links_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "app").mkdir()
    (tmp_path / "app/Procfile").symlink_to(tmp_path / "secret")
    assert read_small(tmp_path / "app", "Procfile") is None


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "Procfile")
    assert read_small(tmp_path, "Procfile") is None


def test_lfs_pointers_are_found_by_content(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text(POINTER)
    (tmp_path / "about-lfs.md").write_text("About " + POINTER)
    (tmp_path / "big.bin").write_text(POINTER + "x" * 2000)
    assert lfs_pointers(tmp_path, listing(tmp_path)) == ["model.bin"]


def test_submodules_that_came_empty_are_named(tmp_path: Path) -> None:
    (tmp_path / ".gitmodules").write_text(
        '[submodule "a"]\n\tpath = vendor/a\n\turl = ../a\n[submodule "b"]\n\tpath = vendor/b\n\turl = ../b\n'
    )
    (tmp_path / "vendor/a").mkdir(parents=True)
    (tmp_path / "vendor/b").mkdir()
    (tmp_path / "vendor/b/file").touch()
    assert empty_submodules(tmp_path) == ["vendor/a"]


def test_long_lists_are_cut_for_a_sentence() -> None:
    assert shown([str(n) for n in range(8)]) == "0, 1, 2, 3, 4 and 3 more"
