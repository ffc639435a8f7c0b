"""What a machine's life is strung together from: VMM, network, disks, snapshots, guest, journal.

Only what the agent calls is named here, as protocols, so that its logic is tested without root and without QEMU; the
real ones come from `hosts.vmm`, `hosts.net`, `hosts.disk`, `hosts.snapshots` and `hosts.guest` and are put together
in `hosts.agent.start`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hosts.agent.clock import Clock
from hosts.agent.durable import Scribe
from hosts.agent.journal import Journal
from hosts.guest.client import GuestStatus, Hello, Listening, LogPage, NotListening
from hosts.snapshots.files import Identity, SnapshotFiles
from hosts.vmm.protocol import Boot, Disk, Vm, VmConfig, Vmm
from hosts.wire.allowlist import AllowedName
from hosts.wire.commands import OutboundName, Step
from hosts.wire.manifest import Manifest
from hosts.wire.spec import Egress, ImageDigest, Process

OpenSocket = Callable[[float], Awaitable[socket.socket]]


class Namespace(Protocol):
    """The network namespace of one machine."""

    @property
    def name(self) -> str: ...

    async def connect(self, port: int, timeout_s: float) -> socket.socket:
        """A connected, non-blocking TCP socket to a port of the guest; OSError or TimeoutError."""
        ...

    async def datagrams(self, port: int, timeout_s: float) -> socket.socket:
        """A connected, non-blocking UDP socket to a port of the guest; OSError or TimeoutError."""
        ...


class Network(Protocol):
    """`hosts.net.network.Network`."""

    def name_of(self, slot: int) -> str: ...
    async def ensure(self, slot: int, egress: Egress, uid: int, allow: tuple[AllowedName, ...] = ()) -> Namespace: ...
    async def set_egress(self, slot: int, egress: Egress, allow: tuple[AllowedName, ...] = ()) -> None: ...
    def outbound(self, slot: int) -> tuple[OutboundName, ...]: ...
    async def remove(self, slot: int) -> None: ...
    async def reclaim(self, keep: frozenset[int]) -> frozenset[int]: ...


class Guest(Protocol):
    """`hosts.guest.client.GuestClient`."""

    async def hello(self, timeout_s: float) -> Hello: ...
    async def start(
        self,
        process: Process,
        *,
        hostname: str,
        clock_ms: Callable[[], int],
        entropy: bytes,
        nameservers: Sequence[str] = (),
        timeout_s: float = 5.0,
    ) -> None: ...
    async def await_listening(self, timeout_s: float) -> Listening | NotListening: ...
    async def resume(
        self, *, clock_ms: Callable[[], int], entropy: bytes, timeout_s: float = 5.0
    ) -> tuple[Step, ...]: ...
    async def status(self, timeout_s: float = 5.0) -> GuestStatus: ...
    async def logs(self, after: int = 0) -> LogPage: ...
    async def sync(self, timeout_s: float = 10.0, *, drop_caches: bool = False) -> None: ...


class Images(Protocol):
    """`hosts.disk.images.ImageStore`."""

    def has(self, digest: ImageDigest) -> bool: ...
    def path(self, digest: ImageDigest) -> Path: ...


class Volumes(Protocol):
    """`hosts.disk.volumes.VolumeMaker`."""

    def make(self, path: Path, size_mib: int, uid: int) -> None: ...


class Snapshots(Protocol):
    """`hosts.snapshots.pair` and `.checkpoint`, as one object (`hosts.agent.start.DiskSnapshots`)."""

    async def suspend(self, vm: Vm, files: SnapshotFiles, identity: Identity, *, now_ms: int) -> Manifest: ...
    async def resume(
        self,
        vmm: Vmm,
        config: VmConfig,
        files: SnapshotFiles,
        identity: Identity,
        *,
        loaded: Callable[[Vm], Awaitable[None]] | None = None,
    ) -> Vm: ...
    async def spend(self, files: SnapshotFiles) -> None: ...
    async def record_memory_hash(self, files: SnapshotFiles) -> None: ...
    async def checkpoint(
        self,
        vm: Vm,
        files: SnapshotFiles,
        identity: Identity,
        *,
        now_ms: int,
        cloned: Callable[[], Awaitable[None]] | None = None,
    ) -> Manifest: ...
    def has_pair(self, files: SnapshotFiles) -> bool: ...
    def has_checkpoint(self, files: SnapshotFiles) -> bool: ...
    def reclaim(self, files: SnapshotFiles) -> None: ...


@dataclass(frozen=True, slots=True)
class BaseImage:
    """Kernel, initramfs and base image that belong together under one digest."""

    digest: str
    boot: Boot
    disk: Disk


class BaseImages(Protocol):
    """Finds guest images by digest."""

    def find(self, digest: str) -> BaseImage | None:
        """The base image of that digest, or None; "current" is the newest."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one kind of work the host does at a time, so that a herd of idle machines cannot starve a wake."""

    cold_boots: asyncio.Semaphore
    suspends: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a machine needs from its host."""

    machines: Path
    vmm: Vmm
    network: Network
    images: Images
    volumes: Volumes
    snapshots: Snapshots
    base_images: BaseImages
    guest: Callable[[OpenSocket, OpenSocket], Guest]
    uid_of: Callable[[int], int]  # slot -> the uid its VMM runs as
    clock: Clock
    scribe: Scribe
    journal: Journal
    limits: Limits
    nameservers: tuple[str, ...] = ()
