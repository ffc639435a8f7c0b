"""Writable disks: sparse files with an empty ext4, one per machine.

Making a file system takes longer than copying the little of it that is not a hole, so each size is formatted once and
kept as a template. A host writes to a volume only here, before any guest has seen it, and never mounts one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from hosts.disk.clone import clone

MKFS = "/usr/sbin/mkfs.ext4"
MKFS_TIMEOUT_S = 60.0  # making a disk
MIB = 1 << 20
SIZES_MIB = range(8, (1 << 20) + 1)  # of a machine's disk

# Raise it with any change of OPTIONS: templates are found by it.
FORMAT = 1
OPTIONS = (
    *("-F", "-q", "-m", "0", "-L", "data"),
    # The journal of a fresh sparse file reads as zeros anyway. Inode tables are zeroed here, or else every guest
    # would do it in the background: sixteen megabytes of a gigabyte, and a machine that is never quite idle.
    *("-E", "lazy_itable_init=0,lazy_journal_init=1,nodiscard"),
)


class VolumeError(Exception):
    """mkfs failed; the text is its own."""


class VolumeMaker:
    """Makes volumes from the templates in one folder. Blocking."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def make(self, path: Path, size_mib: int, uid: int) -> None:
        """A formatted volume at `path`, which must not exist, owned by `uid` alone; whole or absent."""
        template = self._template(size_mib)
        beside = path.with_name(f".{path.name}.new")
        beside.unlink(missing_ok=True)
        clone(template, beside)
        try:
            os.chown(beside, uid, uid, follow_symlinks=False)
            os.link(beside, path)  # unlike a rename, never over a disk that is there
        finally:
            beside.unlink()

    def _template(self, size_mib: int) -> Path:
        if size_mib not in SIZES_MIB:
            raise VolumeError(f"a volume of {size_mib} MiB")
        ready = self._folder / f"ext4-{FORMAT}-{size_mib}"
        if ready.exists():
            return ready
        fd, beside = tempfile.mkstemp(dir=self._folder, prefix=".new-")
        try:
            os.ftruncate(fd, size_mib * MIB)
            _format(beside)
            Path(beside).rename(ready)
        except BaseException:
            Path(beside).unlink()
            raise
        finally:
            os.close(fd)
        return ready


def _format(path: str) -> None:
    try:
        subprocess.run([MKFS, *OPTIONS, path], check=True, capture_output=True, text=True, timeout=MKFS_TIMEOUT_S)
    except subprocess.CalledProcessError as e:
        raise VolumeError(f"mkfs.ext4: {e.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as e:
        raise VolumeError(f"mkfs.ext4: {e}") from None
