"""Puts finished images where hosts look for them: <dir>/<digest>/ complete or not at all, and `current` moved last.

A folder is never changed once it has its name: machines asleep were started from it and must find the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from imaging.progress import say

READ_BYTES = 1 << 20


def place(shelf: Path, *, kernel: Path, initramfs: bytes, base: Path) -> str:
    """The digest under which the three now stand in `shelf`, `current` pointing at it."""
    whole = hashlib.sha256()
    for part in (_file_sha256(kernel), hashlib.sha256(initramfs).hexdigest(), _file_sha256(base)):
        whole.update(part.encode())
    digest = whole.hexdigest()
    if not (shelf / digest).exists():
        say(f"placing {digest[:12]}")
        work = Path(tempfile.mkdtemp(dir=shelf, prefix=".new-"))
        _link_or_copy(kernel, work / "vmlinuz")
        _link_or_copy(base, work / "base.erofs")
        (work / "initramfs").write_bytes(initramfs)
        (work / "digest").write_text(f"{digest}\n")
        for file in work.iterdir():
            file.chmod(0o444)  # jailed QEMUs open them under uids of their own
            _fsync(file)
        work.chmod(0o755)
        work.rename(shelf / digest)
    else:
        say(f"unchanged: {digest[:12]}")
    pointer = shelf / ".current-new"
    pointer.unlink(missing_ok=True)
    pointer.symlink_to(digest)
    pointer.rename(shelf / "current")
    _fsync(shelf)
    return digest


def _link_or_copy(source: Path, target: Path) -> None:
    """A hard link shares disk and page cache between checkouts; over a file system border it has to be a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
