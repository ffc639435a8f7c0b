"""Hashes of state and memory files, and giving back the blocks of memory a guest never touched.

A memory file is mostly holes and zeros, so its hash covers only blocks with something in them, each with its place:
the same for every layout of the same content, and cheap. It can be stopped between two blocks.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from hosts.disk.clone import data_ranges

BLOCK_BYTES = 64 * 1024
_ZEROS = bytes(BLOCK_BYTES)

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Stopped(Exception):  # noqa: N818 - reads as the fact it states
    """The hash was no longer wanted."""


def state_sha256(path: Path) -> tuple[str, int]:
    """Hash and size of a small file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def memory_sha256(path: Path, stopped: Callable[[], bool] = lambda: False) -> str:
    """Hash of (offset, content) of every block that is not zero, and of the size; Stopped if `stopped` says so."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        sha256 = hashlib.sha256(size.to_bytes(8, "big"))
        done = 0
        for start, end in data_ranges(fd, size):
            offset = max(done, start - start % BLOCK_BYTES)
            while offset < end:
                if stopped():
                    raise Stopped
                block = os.pread(fd, BLOCK_BYTES, offset)
                if block != _ZEROS[: len(block)]:
                    sha256.update(offset.to_bytes(8, "big"))
                    sha256.update(block)
                offset += BLOCK_BYTES
            done = offset
        return sha256.hexdigest()
    finally:
        os.close(fd)


def give_back_untouched(path: Path) -> None:
    """Free the blocks that were reserved for memory the guest never wrote; content and time stamps stay."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        before = os.fstat(fd)
        position = 0
        for start, end in [*data_ranges(fd, before.st_size), (before.st_size, before.st_size)]:
            if start > position:
                # Not every file system can; then the blocks simply stay reserved.
                _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, position, start - position)
            position = end
        os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
    finally:
        os.close(fd)
