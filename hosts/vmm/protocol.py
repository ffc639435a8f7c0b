"""The small protocol between a machine's life (`hosts.agent`) and whatever runs its vCPUs (QEMU here; Firecracker may follow).

Readiness is never decided here: a VMM that says "running" may hold a dead guest. Exit code 0 is a crash unless we asked for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class VmmError(Exception):
    """The VMM refused, broke or did not answer in time; the text says which call and why."""


@dataclass(frozen=True, slots=True)
class Disk:
    """One virtio block device, always raw. Guests find it by `serial` (at most 20 ASCII characters)."""

    serial: str  # "base", "release", "data"; a builder has "source" and "output" too
    path: Path
    read_only: bool


@dataclass(frozen=True, slots=True)
class Boot:
    """What a kernel start needs."""

    kernel: Path
    initramfs: Path
    cmdline: str


@dataclass(frozen=True, slots=True)
class VmConfig:
    """One microVM. Equal configs give equal QEMU arguments, which is what makes a snapshot loadable."""

    name: str  # machine id or "build-<id>"
    folder: Path  # the machine's own folder, owned by `uid`, mode 0700: memory file, QMP socket, console log
    memory_mib: int
    vcpus: int
    boot: Boot
    disks: tuple[Disk, ...]
    mac: str
    netns: str  # the network namespace the process is started in; its tap is `tap0`
    uid: int  # the unprivileged uid (and gid) QEMU runs as


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What is kept on disk to find a VMM process again: a pid alone may have been recycled."""

    pid: int  # of QEMU itself, as the host sees it
    start_ticks: int  # field 22 of /proc/<pid>/stat
    boot_id: str  # /proc/sys/kernel/random/boot_id


class Vm(Protocol):
    """One running VMM process. Every call has a time-out inside and raises VmmError."""

    @property
    def record(self) -> ProcessRecord: ...

    @property
    def exited(self) -> asyncio.Event:
        """Set when the process has ended, for whatever reason (also for an adopted one)."""
        ...

    async def pause(self) -> None:
        """Stop the vCPUs. Idempotent."""

    async def resume(self) -> None:
        """Let the vCPUs run. Idempotent."""

    async def is_running(self) -> bool:
        """Whether vCPUs run, as the VMM says."""
        ...

    async def save(self, state: Path) -> None:
        """Write device state (not memory: it stays in its file) of a paused VM to `state`, fsynced; the VM may go on after."""

    async def kill(self) -> None:
        """SIGKILL and wait until the process is gone. Idempotent."""


class Vmm(Protocol):
    """Starts and adopts VMM processes."""

    @property
    def version(self) -> str:
        """What a snapshot must match to be loaded: VMM version and everything of its arguments that shapes state."""
        ...

    async def boot(self, config: VmConfig) -> Vm:
        """Start with a fresh memory file and let the kernel boot; returns once vCPUs run. Removes an old memory file first."""
        ...

    async def load(self, config: VmConfig, state: Path) -> Vm:
        """Start on the existing memory file with device state from `state`; returns with vCPUs still stopped."""
        ...

    async def adopt(self, config: VmConfig, record: ProcessRecord) -> Vm | None:
        """Take over a process that outlived the agent; None if it is gone or is another process."""
        ...
