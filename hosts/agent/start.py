"""Puts the host agent together from its configuration, brings it up, and takes it down again.

Order matters: what an earlier agent left is settled and reclaimed before the API or a single stream can ask for
anything. Edges and control may be away; nothing here waits for them. Going down stops serving and lets every machine
run on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from hosts.agent.budget import BUILD_PATIENCE_S, Budget, BudgetedVmm, machine_memory_mib
from hosts.agent.builds import Builds
from hosts.agent.clock import Clock
from hosts.agent.durable import Scribe, make_folder
from hosts.agent.fleet import Fleet, Slots
from hosts.agent.http import ApiServer
from hosts.agent.idle import Idler
from hosts.agent.journal import open_journal
from hosts.agent.metrics import HostMetrics
from hosts.agent.parts import BaseImage, Limits, Parts
from hosts.agent.reclaim import reclaim
from hosts.agent.recover import carry_on, recover
from hosts.agent.serve import Api
from hosts.agent.ship import ControlEvents, Shipper
from hosts.agent.streams import Streams
from hosts.agent.watch import AliveStamp, Watchdog
from hosts.builder.builder import Builder, BuilderSettings
from hosts.config import HostConfig
from hosts.disk.images import ImageStore
from hosts.disk.volumes import VolumeMaker
from hosts.guest.client import GuestClient
from hosts.guest.cmdline import guest_boot
from hosts.guest.image import GuestImageMissingError, load_image
from hosts.guest.tsc import host_tsc_khz
from hosts.net.addresses import machine_uid
from hosts.net.network import Network
from hosts.snapshots import checkpoint, pair
from hosts.snapshots.files import Identity, SnapshotFiles
from hosts.vmm.accel import probe
from hosts.vmm.arguments import Accelerator
from hosts.vmm.protocol import Vm, VmConfig, Vmm
from hosts.vmm.qemu import Qemu
from hosts.wire.manifest import Manifest
from tunnel.dial import Dialer

log = structlog.get_logger(__name__)

SUSPENDS_AT_ONCE = 4  # the others wait, paused
BUILD_CPUS = 2  # what one builder machine is given


class DiskSnapshots:
    """`parts.Snapshots` by `hosts.snapshots`."""

    async def suspend(self, vm: Vm, files: SnapshotFiles, identity: Identity, *, now_ms: int) -> Manifest:
        """See `pair.suspend`."""
        return await pair.suspend(vm, files, identity, now_ms=now_ms)

    async def resume(
        self,
        vmm: Vmm,
        config: VmConfig,
        files: SnapshotFiles,
        identity: Identity,
        *,
        loaded: Callable[[Vm], Awaitable[None]] | None = None,
    ) -> Vm:
        """See `pair.resume`."""
        return await pair.resume(vmm, config, files, identity, loaded=loaded)

    async def spend(self, files: SnapshotFiles) -> None:
        """See `pair.spend`."""
        await pair.spend(files)

    async def record_memory_hash(self, files: SnapshotFiles) -> None:
        """See `pair.record_memory_hash`."""
        await pair.record_memory_hash(files)

    async def checkpoint(
        self,
        vm: Vm,
        files: SnapshotFiles,
        identity: Identity,
        *,
        now_ms: int,
        cloned: Callable[[], Awaitable[None]] | None = None,
    ) -> Manifest:
        """See `checkpoint.checkpoint`."""
        return await checkpoint.checkpoint(vm, files, identity, now_ms=now_ms, cloned=cloned)

    def has_pair(self, files: SnapshotFiles) -> bool:
        """See `pair.has_pair`."""
        return pair.has_pair(files)

    def reclaim(self, files: SnapshotFiles) -> None:
        """See `checkpoint.reclaim`."""
        checkpoint.reclaim(files)

    def has_checkpoint(self, files: SnapshotFiles) -> bool:
        """See `checkpoint.has_checkpoint`."""
        return checkpoint.has_checkpoint(files)


@dataclass(frozen=True, slots=True)
class GuestImages:
    """`parts.BaseImages` over the folder deploy/images/build fills."""

    folder: Path
    tsc_khz: int

    def find(self, digest: str) -> BaseImage | None:
        """The base image of that digest, or None."""
        try:
            image = load_image(self.folder, digest)
        except GuestImageMissingError:
            return None
        return BaseImage(image.digest, guest_boot(image, tsc_khz=self.tsc_khz), image.base_disk())


@asynccontextmanager
async def running(config: HostConfig) -> AsyncIterator[Fleet]:
    """A whole agent, serving as long as the block lasts."""
    clock, scribe = Clock(), Scribe()
    for folder in (config.folder, config.machines, config.folder / "images"):
        await scribe.run(_folder, folder)
    journal = await open_journal(config.folder / "journal", scribe, clock)
    stamp = AliveStamp(config.folder / "alive", clock, scribe)
    vmm = await _vmm(config)
    budget = Budget(config.machine_memory_mib or await scribe.run(machine_memory_mib))
    # Under KVM a guest is told the counter's rate by KVM itself.
    tsc_khz = await scribe.run(host_tsc_khz, config.folder / "tsc_khz") if vmm.accelerator is Accelerator.TCG else 0
    network = Network(config.instance, config.nameservers)
    images = ImageStore(config.folder / "images")
    parts = Parts(
        machines=config.machines,
        vmm=BudgetedVmm(vmm, budget),
        network=network,
        images=images,
        volumes=VolumeMaker(config.folder / "volumes"),
        snapshots=DiskSnapshots(),
        base_images=GuestImages(config.images, tsc_khz),
        guest=GuestClient,
        uid_of=lambda slot: machine_uid(config.instance, slot),
        clock=clock,
        scribe=scribe,
        journal=journal,
        limits=Limits(
            cold_boots=asyncio.Semaphore(max(2, os.cpu_count() or 1)), suspends=asyncio.Semaphore(SUSPENDS_AT_ONCE)
        ),
        nameservers=config.nameservers,
    )
    slots = Slots()
    fleet = Fleet(parts, slots, budget)
    metrics = HostMetrics(fleet.all, journal)
    idler = Idler(fleet.all, clock, pressed=lambda: budget.pressed)
    budget.relieve = idler.relieve
    found = await recover(parts, slots, alive_ms=stamp.read_ms())
    fleet.adopt([one.machine for one in found])
    builds_folder = config.folder / "builds"
    await reclaim(fleet.all(), processes=vmm, network=network, images=images, builds=builds_folder, scribe=scribe)
    carry_on(found)

    builds = Builds(
        builds_folder,
        Builder(
            vmm=BudgetedVmm(vmm, budget, patience_s=BUILD_PATIENCE_S),
            network=network,
            images=images,
            volumes=parts.volumes,
            guest_images=config.images,
            settings=_builder_settings(config, tsc_khz),
        ),
        slots=slots,
        uid_of=parts.uid_of,
        scribe=scribe,
        at_once=max(1, (os.cpu_count() or 1) // BUILD_CPUS),
    )
    server = ApiServer(
        config.api_socket, Api(fleet, builds, host_id=config.host_id, accelerator=str(vmm.accelerator)).handle
    )
    await server.start()
    if config.metrics is not None:
        await metrics.start(config.metrics.host, config.metrics.port)
    control = ControlEvents(config.control_url, config.host_id, config.host_token)
    dialer = Dialer(
        [(edge.host, edge.port) for edge in config.edge_links],
        config.host_id,
        config.link_token,
        Streams(find=fleet.find, machines=fleet.all, api_socket=config.api_socket),
    )
    try:
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(Shipper(journal, control, host_id=config.host_id, clock=clock).run(), name="ship"),
                group.create_task(stamp.run(), name="alive-stamp"),
                group.create_task(idler.run(), name="idle"),
                group.create_task(Watchdog(fleet.all, clock).run(), name="watchdog"),
                group.create_task(dialer.run(), name="dial"),
            ]
            log.info("agent.up", host=config.host_id, machines=len(found), accelerator=str(vmm.accelerator))
            yield fleet
            for loop in loops:
                loop.cancel()
    finally:
        await server.close()
        await metrics.stop()
        await builds.cancel_all()
        await control.close()
        await asyncio.gather(*(machine.let_go() for machine in fleet.all()))
        network.close()
        await journal.close()
        vmm.close()
        scribe.close()
        log.info("agent.down")


async def _vmm(config: HostConfig) -> Qemu:
    current = load_image(config.images)
    accelerator = await probe(config.accelerator, kernel=current.kernel, folder=config.folder)
    return await Qemu.detect(instance=config.instance, accelerator=accelerator, folder=config.folder)


def _builder_settings(config: HostConfig, tsc_khz: int) -> BuilderSettings:
    return BuilderSettings(
        env=dict(config.builder_env), nameservers=config.nameservers, ca_bundle=config.ca_bundle, tsc_khz=tsc_khz
    )


def _folder(path: Path) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    make_folder(path)
