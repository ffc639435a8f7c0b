"""What a machine is made of on this host: its disks, its VMM configuration, and what a snapshot of it must match.

Equal every time it is asked for, over agent restarts too, because a snapshot can be loaded only into the configuration
it was taken with.
"""

from __future__ import annotations

import asyncio

from hosts.agent.parts import BaseImage, Parts
from hosts.agent.record import MachineFiles
from hosts.net.addresses import GUEST_MAC
from hosts.snapshots.files import Identity, SnapshotFiles
from hosts.vmm.protocol import Disk, VmConfig
from hosts.wire.spec import MachineSpec

CURRENT = "current"


class ImageMissing(Exception):  # noqa: N818 - reads as the fact it states
    """An image the machine needs is not on this host."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Shape:
    """One machine's form. The slot and the base image are the record's, and are passed in."""

    def __init__(self, spec: MachineSpec, files: MachineFiles, parts: Parts) -> None:
        self._spec = spec
        self._files = files
        self._parts = parts
        self.snapshot = SnapshotFiles(files.folder)

    def base_image(self, digest: str) -> BaseImage:
        """The base image the machine was first booted with, or the newest where that one is gone; or ImageMissing."""
        base = self._parts.base_images.find(digest or CURRENT) or self._parts.base_images.find(CURRENT)
        if base is None:
            raise ImageMissing("boot:no_base_image", "this host has no guest image; deploy/images/build makes one")
        if not self._parts.images.has(self._spec.image):
            raise ImageMissing("image:unknown", f"release image {self._spec.image} is not on this host")
        return base

    def vm_config(self, netns: str, *, base: BaseImage, slot: int) -> VmConfig:
        """The VMM's configuration."""
        return VmConfig(
            name=self._spec.machine_id,
            folder=self._files.folder,
            memory_mib=self._spec.size.memory_mib,
            vcpus=self._spec.size.vcpus,
            boot=base.boot,
            disks=(
                base.disk,
                Disk("release", self._parts.images.path(self._spec.image), read_only=True),
                Disk("data", self.snapshot.disk, read_only=False),
            ),
            mac=GUEST_MAC,
            netns=netns,
            uid=self._parts.uid_of(slot),
        )

    def identity(self, config: VmConfig, *, base: str) -> Identity:
        """What a snapshot of this machine must have been taken with."""
        return Identity(
            machine_id=self._spec.machine_id,
            vmm_version=self._parts.vmm.version,
            arguments_sha256=self._parts.vmm.arguments_sha256(config),
            base=base,
            image=self._spec.image,
        )

    async def make_disk(self, slot: int) -> None:
        """The writable disk, made once and kept for the machine's life."""
        if not self.snapshot.disk.exists():
            uid = self._parts.uid_of(slot)
            await asyncio.to_thread(self._parts.volumes.make, self.snapshot.disk, self._spec.size.disk_mib, uid)
