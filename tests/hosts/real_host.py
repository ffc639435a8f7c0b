"""A host's real parts for tests that boot real guests: QEMU, namespaces, disks and the guest images deploy/images/build
makes.

Images come out of the builder's own cache, so only the first test of the first run on a machine waits for them.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hosts.builder.builder import Builder, BuilderSettings, BuildPlace
from hosts.disk.images import ImageStore
from hosts.disk.volumes import VolumeMaker
from hosts.guest.client import AGENT_PORT, GuestClient
from hosts.guest.cmdline import guest_boot
from hosts.guest.contract import RESPONDER_PORT
from hosts.guest.image import GuestImage, load_image
from hosts.guest.tsc import host_tsc_khz
from hosts.net.addresses import GUEST_MAC, machine_uid
from hosts.net.network import Namespace, Network
from hosts.vmm.arguments import Accelerator
from hosts.vmm.protocol import Disk, Vm, VmConfig
from hosts.vmm.qemu import Qemu
from hosts.wire.commands import BuildPhase, BuildSpec, BuiltImage, Failure
from hosts.wire.spec import Egress
from tests.environment import INSTANCE, ROOT, VAR

IMAGES_TIMEOUT_S = 900
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
MEMORY_MIB = 256
DISK_MIB = 256
BUILD_ID = "b" * 32


def guest_images() -> Path:
    """The folder of guest images, filled."""
    folder = VAR / "images"
    if not (folder / "current").exists():
        subprocess.run([ROOT / "deploy/images/build", folder], check=True, timeout=IMAGES_TIMEOUT_S)
    return folder


def nameservers() -> tuple[str, ...]:
    """This machine's own, IPv4 only, as a host's namespaces have no other."""
    return tuple(
        re.findall(r"^nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$", Path("/etc/resolv.conf").read_text(), re.MULTILINE)
    )


@dataclass
class Machine:
    """A booted guest."""

    vm: Vm
    guest: GuestClient
    namespace: Namespace


@dataclass
class Lines:
    """A BuildWatch that keeps everything."""

    phases: list[BuildPhase]
    lines: list[str]

    def phase(self, phase: BuildPhase) -> None:
        self.phases.append(phase)

    def line(self, line: str) -> None:
        self.lines.append(line)


class RealHost:
    """Boots machines and runs builds in a folder of its own."""

    def __init__(self, folder: Path, vmm: Qemu, network: Network) -> None:
        self.folder = folder
        self.vmm = vmm
        self.network = network
        self.images = ImageStore(folder / "images")
        self.volumes = VolumeMaker(folder / "volumes")
        self.tsc_khz = host_tsc_khz(folder / "tsc_khz") if vmm.accelerator is Accelerator.TCG else 0

    @property
    def image(self) -> GuestImage:
        return load_image(guest_images())

    @asynccontextmanager
    async def machine(self, release: Path, *, slot: int, egress: Egress = Egress.NONE) -> AsyncIterator[Machine]:
        """A machine of a release image, killed at the end."""
        uid = machine_uid(INSTANCE, slot)
        folder = self.folder / f"machine-{slot}"
        folder.mkdir(mode=0o700)
        self.volumes.make(folder / "disk", DISK_MIB, uid)
        namespace = await self.network.ensure(slot, egress, uid)
        image = self.image
        config = VmConfig(
            name=f"test-{slot}",
            folder=folder,
            memory_mib=MEMORY_MIB,
            vcpus=1,
            boot=guest_boot(image, tsc_khz=self.tsc_khz),
            disks=(
                image.base_disk(),
                Disk("release", release, read_only=True),
                Disk("data", folder / "disk", read_only=False),
            ),
            mac=GUEST_MAC,
            netns=namespace.name,
            uid=uid,
        )
        vm = await self.vmm.boot(config)
        try:
            yield Machine(vm, _client(namespace), namespace)
        finally:
            await vm.kill()
            await self.network.remove(slot)

    async def build(
        self, app: Path, *, slot: int, timeout_s: int = 600, disk_mib: int = 2048, memory_mib: int = 2048
    ) -> tuple[BuiltImage | Failure, Lines]:
        """Build a folder as if it had been pushed."""
        source = self.folder / f"source-{slot}.tar"
        await asyncio.to_thread(_pack, app, source)
        place = BuildPlace(slot, machine_uid(INSTANCE, slot), self.folder / f"build-{slot}")
        place.folder.mkdir(mode=0o700)
        settings = BuilderSettings(
            nameservers=nameservers(),
            ca_bundle=CA_BUNDLE,
            tsc_khz=self.tsc_khz,
            disk_mib=disk_mib,
            memory_mib=memory_mib,
        )
        builder = Builder(
            vmm=self.vmm,
            network=self.network,
            images=self.images,
            volumes=self.volumes,
            guest_images=guest_images(),
            settings=settings,
        )
        watch = Lines([], [])
        return await builder.build(BuildSpec(BUILD_ID, "sample", timeout_s), source, place, watch), watch


def _pack(app: Path, source: Path) -> None:
    subprocess.run(["tar", "-cf", source, "-C", app, "."], check=True, timeout=60)


@asynccontextmanager
async def real_host(folder: Path) -> AsyncIterator[RealHost]:
    """A host as long as the block lasts; nothing of it stays."""
    vmm = await Qemu.detect(instance=INSTANCE, accelerator=Accelerator.TCG, folder=folder)
    network = Network(INSTANCE, nameservers())
    try:
        yield RealHost(folder, vmm, network)
    finally:
        network.close()


def _client(namespace: Namespace) -> GuestClient:
    return GuestClient(
        lambda timeout_s: namespace.connect(AGENT_PORT, timeout_s),
        lambda timeout_s: namespace.datagrams(RESPONDER_PORT, timeout_s),
    )
