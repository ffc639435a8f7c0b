"""Where the parts of a snapshot lie, what it must match, and how it is refused.

A snapshot is a memory file, a device state file, a disk and a manifest in one folder. The state file's name is the
commit point: the manifest is written before it appears, and it is gone, durably, before vCPUs run on. So a manifest
without a state file is a spent pair.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from hosts.wire.codec import WireError, decode, encode
from hosts.wire.manifest import FileStamp, Manifest
from hosts.wire.spec import ImageDigest, MachineId

# What a busy host is short of now and has again later: it says nothing about a file.
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


class SnapshotRefused(Exception):  # noqa: N818 - reads as the fact it states
    """The files are not the snapshot the manifest describes, or not one for this machine: it must not be loaded."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason  # stable: "snapshot:state_hash" and so on


class SnapshotFailed(Exception):  # noqa: N818 - reads as the fact it states
    """A snapshot could not be taken. The VM is as it was, paused, and nothing is lost."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a snapshot must have been taken with to be loaded."""

    machine_id: MachineId
    vmm_version: str
    arguments_sha256: str
    base: str
    image: ImageDigest


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of a machine's pair, or of its checkpoint."""

    folder: Path

    @property
    def memory(self) -> Path:
        """The guest's memory; while a VM runs, the one it runs on."""
        return self.folder / "memory"

    @property
    def disk(self) -> Path:
        """The writable disk."""
        return self.folder / "disk"

    @property
    def state(self) -> Path:
        """Device state; there only while the pair may be loaded."""
        return self.folder / "state"

    @property
    def manifest(self) -> Path:
        """What must be true of the others."""
        return self.folder / "manifest.json"

    @property
    def checkpoint(self) -> SnapshotFiles:
        """The machine's checkpoint: a snapshot of its own, with its own copies."""
        return SnapshotFiles(self.folder / "checkpoint")

    @property
    def state_being_written(self) -> Path:
        """Device state that is not yet anybody's."""
        return self.folder / ".state.new"


def raise_if_passing(error: Exception) -> None:
    """Raise it again if it is the host's trouble and not the file's: no memory is given up for that."""
    if isinstance(error, OSError) and error.errno in _PASSING:
        raise error


def stamp(path: Path) -> FileStamp:
    """The file's identity as it is now; never follows a link."""
    stat = path.lstat()
    return FileStamp(inode=stat.st_ino, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns)


def read_manifest(files: SnapshotFiles) -> Manifest | None:
    """The manifest, None if there is none, or SnapshotRefused if it is none."""
    try:
        return decode(Manifest, files.manifest.read_bytes())
    except FileNotFoundError:
        return None
    except (WireError, OSError, UnicodeDecodeError) as e:
        raise_if_passing(e)
        raise SnapshotRefused("snapshot:manifest_unreadable", f"the manifest cannot be read: {e}") from None


def write_manifest(files: SnapshotFiles, manifest: Manifest) -> None:
    """Replace the manifest, its content fsynced; the folder is left to the caller."""
    beside = files.folder / ".manifest.new"
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(encode(manifest))
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        beside.rename(files.manifest)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """fsync a file's content or a folder's names."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
