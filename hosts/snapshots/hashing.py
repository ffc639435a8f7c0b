"""Hashes of state and memory files, and giving back the blocks of a memory file that hold nothing.

A memory file is mostly holes and zeros, so its hash covers only blocks with something in them, each with its place:
the same for every layout of the same content, and cheap. It can be stopped between two blocks.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hosts.disk.clone import data_ranges

BLOCK_BYTES = 64 * 1024
# The smallest hole. Smaller ones save little more (of a Flask app's 102 MiB these save 9, the smallest possible 15),
# and each is filled again while somebody waits for a wake.
HOLE_BYTES = 16 * 1024
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


@dataclass(frozen=True, slots=True)
class MemoryHash:
    """The hash of a memory file, and where in it there are only zeros, as (start, end)."""

    sha256: str
    zeros: tuple[tuple[int, int], ...]


def memory_sha256(path: Path, stopped: Callable[[], bool] = lambda: False) -> MemoryHash:
    """Hash (offset, content) of every block that is not zero, and the size; Stopped if `stopped` says so."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        sha256 = hashlib.sha256(size.to_bytes(8, "big"))
        zeros: list[tuple[int, int]] = []
        done = 0  # everything before is hashed or zeros
        nonzero_end = 0
        for start, end in data_ranges(fd, size):
            offset = max(done, start - start % BLOCK_BYTES)
            while offset < end:
                if stopped():
                    raise Stopped
                block = os.pread(fd, BLOCK_BYTES, offset)
                if block != _ZEROS[: len(block)]:
                    sha256.update(offset.to_bytes(8, "big"))
                    sha256.update(block)
                    for at in range(0, len(block), HOLE_BYTES):
                        piece = block[at : at + HOLE_BYTES]
                        if piece != _ZEROS[: len(piece)]:
                            if offset + at > nonzero_end:
                                zeros.append((nonzero_end, offset + at))
                            nonzero_end = offset + at + len(piece)
                offset += BLOCK_BYTES
            done = offset
        if size > nonzero_end:
            zeros.append((nonzero_end, size))
        return MemoryHash(sha256.hexdigest(), tuple(zeros))
    finally:
        os.close(fd)


def punch(fd: int, start: int, end: int) -> None:
    """Make a hole where there are only zeros; content and time stamps stay. Nothing happens where that cannot be."""
    before = os.fstat(fd)
    _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, start, end - start)
    os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
