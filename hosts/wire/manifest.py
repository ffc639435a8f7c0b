"""The manifest of a snapshot: what must be true of its files before any VMM starts. QEMU checks next to nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hosts.wire.spec import ImageDigest, MachineId

MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file's identity on this boot of this host: any write, truncation or replacement changes it."""

    inode: int
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One memory/state/disk triple of one instant. Spent at `cont`: the state file is gone before vCPUs run."""

    format: int
    machine_id: MachineId
    generation: int  # counts the snapshots of this machine; memory and state must be of the same one
    taken_at_ms: int
    host_boot_id: str
    vmm_version: str
    arguments_sha256: str  # of the VMM's argument list
    base: str  # digest of kernel + initramfs + base image
    image: ImageDigest
    state_sha256: str
    state_bytes: int
    memory: FileStamp
    memory_sha256: str  # "" until hashed in the background; needed after a host reboot
    disk: FileStamp
