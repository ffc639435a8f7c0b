"""Looks at an unpacked source tree: what is in it, and what only seems to be (LFS pointers, empty submodules).

Runs inside the builder machine, on files a stranger made: links are never followed, and every read is bounded.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 200_000  # of a source that are looked at
MAX_READ_BYTES = 512 * 1024  # of one file, to find out what it is
LFS_HEAD = b"version https://git-lfs.github.com/spec/v1\n"
LFS_SIZES = range(len(LFS_HEAD), 1024)  # a pointer is three lines
MAX_NAMED = 5  # files, in a message
SKIPPED = frozenset({"node_modules", ".git"})


def listing(root: Path) -> list[str]:
    """Paths of files relative to the root, those of `node_modules` left out."""
    names = []
    for path in _files(root):
        names.append(path)
        if len(names) >= MAX_FILES:
            break
    return sorted(names)


def read_small(root: Path, name: str) -> str | None:
    """A regular file's text; None where there is none."""
    try:
        handle = os.open(root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        return file.read(MAX_READ_BYTES).decode("utf-8", "replace")


def lfs_pointers(root: Path, names: list[str]) -> list[str]:
    """Files that are a Git LFS pointer instead of what they are called."""
    found = []
    for name in names:
        status = os.lstat(root / name)
        if (
            stat.S_ISREG(status.st_mode)
            and status.st_size in LFS_SIZES
            and (root / name).read_bytes().startswith(LFS_HEAD)
        ):
            found.append(name)
    return found


def empty_submodules(root: Path) -> list[str]:
    """Paths that .gitmodules names and the push did not bring."""
    text = read_small(root, ".gitmodules") or ""
    paths = re.findall(r"^\s*path\s*=\s*(.+?)\s*$", text, re.MULTILINE)
    return [p for p in paths if not _has_content(root / p)]


def shown(names: list[str]) -> str:
    """A few of them, for a sentence."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _has_content(folder: Path) -> bool:
    try:
        return folder.is_dir() and any(folder.iterdir())
    except OSError:
        return False


def _files(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root, followlinks=False):
        folders[:] = sorted(set(folders) - SKIPPED)
        for name in files:
            yield str(Path(folder, name).relative_to(root))
