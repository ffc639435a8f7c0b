"""What files occupy, and whether there is room for more: asked before a machine or image is made, so that none is
half made.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

# Kept aside for what runs already: sparse disks that fill, journals, device state of machines going to sleep.
RESERVE_BYTES = 512 << 20  # free disk that no new machine takes

_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own


class NoSpace(OSError):  # noqa: N818 - reads as the fact it states
    """The disk has no room for what was asked; nothing was begun."""


def usage_bytes(folder: Path) -> int:
    """What everything below `folder` occupies on disk: a sparse file counts what it holds (blocking)."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += Path(parent, name).lstat().st_blocks * _BLOCK_BYTES
            except FileNotFoundError:
                continue  # a state file may be spent at any moment
    return total


def free_bytes(folder: Path) -> int:
    """What may still be written below `folder` without touching the reserve."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize - RESERVE_BYTES


def require_free(folder: Path, wanted_bytes: int) -> None:
    """NoSpace unless there is room for `wanted_bytes` beside the reserve."""
    free = free_bytes(folder)
    if free < wanted_bytes:
        raise NoSpace(
            errno.ENOSPC,
            f"{wanted_bytes >> 20} MiB wanted, {max(free, 0) >> 20} MiB free beside the reserve",
            str(folder),
        )
