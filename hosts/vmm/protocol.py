"""The small protocol between a machine's life (`hosts.agent`) and whatever runs its vCPUs (QEMU here; Firecracker may
follow).

Readiness is never decided here: a VMM that says "running" may hold a dead guest. Exit code 0 is a crash unless we
asked for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class VmmError(Exception):
    """The VMM refused, broke or did not answer in time; the text says which call and why."""


class NoAnswer(VmmError):  # noqa: N818 - reads as the fact it states
    """The VMM was too slow to answer, as on a busy host any may be; nothing was refused."""


class StateRefused(VmmError):  # noqa: N818 - reads as the fact it states
    """The VMM started but would not take the device state: trying again with the same files is of no use."""


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
    folder: Path  # of this VMM alone, owned by root, mode 0700: the memory file and the agent's ends of QMP and console
    memory_mib: int
    vcpus: int
    boot: Boot
    disks: tuple[Disk, ...]
    mac: str
    netns: str  # the network namespace whose `tap0` the guest gets
    uid: int  # the unprivileged uid (and gid) the VMM runs as; memory file and writable disks become its own


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
        """Write device state (not memory: it stays in its file) of a paused VM to `state`, fsynced; the VM may go on
        after.
        """

    async def kill(self) -> None:
        """SIGKILL, wait until the process is gone, give back what it used. Idempotent; also due after an end nobody
        asked for.
        """

    def console_tail(self) -> str:
        """What the guest printed last (at most 64 KiB), also after its end."""
        ...

    def close(self) -> None:
        """Let go of the process without ending it: the agent stops, the machine goes on. Idempotent."""


class Vmm(Protocol):
    """Starts and adopts VMM processes."""

    @property
    def version(self) -> str:
        """What a snapshot must match to be loaded: VMM version and everything of its arguments that shapes state."""
        ...

    def arguments_sha256(self, config: VmConfig) -> str:
        """The hash of everything in `config` that shapes device state; a snapshot must match it as well."""
        ...

    async def boot(self, config: VmConfig) -> Vm:
        """Start with a fresh memory file and let the kernel boot; returns once vCPUs run. Removes an old memory file
        first.
        """
        ...

    async def load(self, config: VmConfig, state: Path) -> Vm:
        """Start on the existing memory file with device state from `state`; returns with vCPUs still stopped.

        StateRefused if the state cannot be loaded; any other VmmError leaves the pair as good as it was.
        """
        ...

    async def adopt(self, config: VmConfig, record: ProcessRecord) -> Vm | None:
        """Take over a process that outlived the agent; None if it is gone, is another process, or hung and was
        killed.
        """
        ...
