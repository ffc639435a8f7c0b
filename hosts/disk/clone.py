"""Copying a big sparse file: by sharing its blocks where the file system can (XFS, btrfs), else only what holds data.

The copy is whole or absent. It is not fsynced: a snapshot makes its files durable together, after the guest goes on.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

_FICLONE = 0x40049409
_NO_REFLINK = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS})
_NO_COPY_RANGE = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF})
CHUNK_BYTES = 8 << 20


def clone(source: Path, target: Path) -> None:
    """Make `target`, which must not exist, equal to `source`; mode 0600, owned by the caller (blocking)."""
    source_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        target_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not _reflink(source_fd, target_fd):
                copy_data(source_fd, target_fd)
        except BaseException:
            target.unlink()
            raise
        finally:
            os.close(target_fd)
    finally:
        os.close(source_fd)


def copy_data(source_fd: int, target_fd: int) -> None:
    """Copy everything but holes; the target becomes as long as the source."""
    size = os.fstat(source_fd).st_size
    os.ftruncate(target_fd, size)
    for start, end in data_ranges(source_fd, size):
        _copy_range(source_fd, target_fd, start, end)


def data_ranges(fd: int, size: int) -> list[tuple[int, int]]:
    """Where a file holds data, as (start, end)."""
    ranges: list[tuple[int, int]] = []
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:  # nothing but a hole from here on
                break
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        ranges.append((start, end))
    return ranges


def _reflink(source_fd: int, target_fd: int) -> bool:
    try:
        fcntl.ioctl(target_fd, _FICLONE, source_fd)
    except OSError as e:
        if e.errno in _NO_REFLINK:
            return False
        raise
    return True


def _copy_range(source_fd: int, target_fd: int, start: int, end: int) -> None:
    while start < end:
        wanted = min(CHUNK_BYTES, end - start)
        try:
            copied = os.copy_file_range(source_fd, target_fd, wanted, start, start)
        except OSError as e:
            if e.errno not in _NO_COPY_RANGE:
                raise
            copied = _write_whole(target_fd, os.pread(source_fd, wanted, start), start)
        if copied == 0:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        start += copied


def _write_whole(fd: int, data: bytes, offset: int) -> int:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], offset + done)
    return done
