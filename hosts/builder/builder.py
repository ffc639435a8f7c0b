"""Builds a push in a machine of its own and takes the image out of it, without ever mounting what a guest wrote.

The machine gets the source as a raw disk and leaves the image on another; its answers are checked like any guest's.
Once it says it is done it is killed before its output is read, so that nothing changes under the hash.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import time
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hosts.builder.verdict import Verdict, failed
from hosts.guest.client import AGENT_PORT, GuestClient, GuestError
from hosts.guest.cmdline import Role, guest_boot
from hosts.guest.contract import RESPONDER_PORT
from hosts.guest.image import GuestImageMissingError, load_image
from hosts.guest.lines import sanitise
from hosts.net.addresses import GUEST_MAC
from hosts.net.network import Namespace, NetworkError
from hosts.vmm.protocol import Disk, Vm, VmConfig, Vmm, VmmError
from hosts.wire.commands import BuildPhase, BuildSpec, BuiltImage, Failure
from hosts.wire.spec import Egress, ImageDigest
from tunnel.tasks import spawn

HELLO_TIMEOUT_S = 90.0  # a builder's boot: a cold kernel under TCG on a busy host
END_TIMEOUT_S = 20.0  # a builder's machine may take to end
PACKING_MARGIN_S = 5.0  # the guest gives up this much before the host does, so that it can say in which command
MAX_LINES = 20_000  # of a build's log that are taken
MIB = 1 << 20
ENTROPY_BYTES = 32
EROFS_SUPERBLOCK_AT = 1024
EROFS_MAGIC = struct.pack("<I", 0xE0F5E1E2)
CONSOLE_TAIL_LINES = 5


class BuildNetwork(Protocol):
    """The part of `hosts.net.network.Network` a build needs."""

    async def ensure(self, slot: int, egress: Egress, uid: int) -> Namespace: ...
    async def remove(self, slot: int) -> None: ...


class BuildVolumes(Protocol):
    """The part of `hosts.disk.volumes.VolumeMaker` a build needs (blocking)."""

    def make(self, path: Path, size_mib: int, uid: int) -> None: ...


class ImageSink(Protocol):
    """The part of `hosts.disk.images.ImageStore` a build needs."""

    async def add(self, source: Path) -> ImageDigest: ...


class BuildWatch(Protocol):
    """Whoever follows a build. Called from the event loop; must not block."""

    def phase(self, phase: BuildPhase) -> None: ...
    def line(self, line: str) -> None: ...


@dataclass(frozen=True, slots=True)
class BuilderSettings:
    """What the operator decides about builds."""

    env: Mapping[str, str] = field(default_factory=dict)  # package index settings, as pip and npm name them
    nameservers: tuple[str, ...] = ()
    ca_bundle: Path | None = None
    tsc_khz: int = 0  # hosts.guest.tsc; 0 under KVM
    memory_mib: int = 2048
    vcpus: int = 2
    disk_mib: int = 6144  # sparse
    output_mib: int = 2048  # the largest image, and sparse


@dataclass(frozen=True, slots=True)
class BuildPlace:
    """Where on this host a build runs. The folder is new and empty; it is gone when the build is over."""

    slot: int
    uid: int
    folder: Path


class Builder:
    """Runs builds, each in a new machine."""

    def __init__(
        self,
        *,
        vmm: Vmm,
        network: BuildNetwork,
        images: ImageSink,
        volumes: BuildVolumes,
        guest_images: Path,
        settings: BuilderSettings,
    ) -> None:
        self._vmm = vmm
        self._network = network
        self._images = images
        self._volumes = volumes
        self._guest_images = guest_images
        self._settings = settings

    async def build(self, spec: BuildSpec, source: Path, place: BuildPlace, watch: BuildWatch) -> BuiltImage | Failure:
        """Build a source tar. A failed build is an answer, not an exception; cancelling the task ends the machine."""
        phase = BuildPhase.BOOTING
        watch.phase(phase)
        deadline = time.monotonic() + spec.timeout_s
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(asyncio.to_thread, shutil.rmtree, place.folder, ignore_errors=True)
                config = await self._prepare(spec, source, place, stack)
                verdict = await self._in_machine(config, place, deadline, watch, stack)
                if isinstance(verdict, Failure):
                    return verdict
                phase = BuildPhase.PACKING
                return await self._take(verdict, place)
        except GuestImageMissingError as e:
            return failed("build:boot", phase, str(e))
        except (VmmError, NetworkError, OSError) as e:
            return failed("build:boot", phase, f"the builder could not be run on this host: {e}")

    async def _prepare(self, spec: BuildSpec, source: Path, place: BuildPlace, stack: AsyncExitStack) -> VmConfig:
        namespace = await self._network.ensure(place.slot, Egress.OPEN, place.uid)
        stack.push_async_callback(self._network.remove, place.slot)
        image = load_image(self._guest_images)
        await asyncio.to_thread(self._lay_out, source, place)
        return VmConfig(
            name=f"build-{spec.build_id}",
            folder=place.folder,
            memory_mib=self._settings.memory_mib,
            vcpus=self._settings.vcpus,
            boot=guest_boot(image, Role.BUILDER, tsc_khz=self._settings.tsc_khz),
            disks=(
                image.base_disk(),
                Disk("data", place.folder / "disk", read_only=False),
                Disk("source", place.folder / "source", read_only=True),
                Disk("output", place.folder / "output", read_only=False),
            ),
            mac=GUEST_MAC,
            netns=namespace.name,
            uid=place.uid,
        )

    def _lay_out(self, source: Path, place: BuildPlace) -> None:
        place.folder.chmod(0o700)
        os.chown(place.folder, 0, 0)
        self._volumes.make(place.folder / "disk", self._settings.disk_mib, place.uid)
        # Its own copy of the name only: the jailed QEMU must be able to read it, the folders above are root's.
        os.link(source, place.folder / "source")
        (place.folder / "source").chmod(0o444)
        output = place.folder / "output"
        with output.open("xb") as file:
            file.truncate(self._settings.output_mib * MIB)
        output.chmod(0o600)
        os.chown(output, place.uid, place.uid)

    async def _in_machine(
        self, config: VmConfig, place: BuildPlace, deadline: float, watch: BuildWatch, stack: AsyncExitStack
    ) -> Verdict | Failure:
        vm = await self._vmm.boot(config)
        stack.push_async_callback(vm.kill)
        namespace = await self._network.ensure(place.slot, Egress.OPEN, place.uid)
        guest = GuestClient(
            lambda timeout_s: namespace.connect(AGENT_PORT, timeout_s),
            lambda timeout_s: namespace.datagrams(RESPONDER_PORT, timeout_s),
        )
        following = _Following(watch)
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + deadline - time.monotonic()):
                verdict = await _unless_it_ends(vm, self._converse(guest, deadline, following))
        except TimeoutError:
            return failed("build:timeout", following.phase, f"the build ran out of time while {following.phase}")
        finally:
            await vm.kill()
        return verdict or failed("build:lost", following.phase, f"the builder ended unasked{_console(vm)}")

    async def _converse(self, guest: GuestClient, deadline: float, following: _Following) -> Verdict | Failure | None:
        try:
            return await self._ask(guest, deadline, following)
        except GuestError as e:
            code = "build:boot" if following.phase is BuildPhase.BOOTING else "build:lost"
            return failed(code, following.phase, f"the builder cannot be reached: {e.message}")

    async def _ask(self, guest: GuestClient, deadline: float, following: _Following) -> Verdict | Failure | None:
        await guest.hello(HELLO_TIMEOUT_S)
        bundle = self._settings.ca_bundle
        job: dict[str, object] = {
            "timeout_s": max(1.0, deadline - time.monotonic() - PACKING_MARGIN_S),
            "env": dict(self._settings.env),
            "ca_bundle": await asyncio.to_thread(bundle.read_text) if bundle is not None else "",
        }
        news = guest.build(
            job,
            clock_ms=lambda: time.time_ns() // 1_000_000,
            entropy=os.urandom(ENTROPY_BYTES),
            nameservers=self._settings.nameservers,
        )
        async with aclosing(news) as items:
            async for item in items:
                verdict = following.take(item)
                if verdict is not None:
                    return verdict
        return None

    async def _take(self, verdict: Verdict, place: BuildPlace) -> BuiltImage | Failure:
        output = place.folder / "output"
        if verdict.size_bytes > self._settings.output_mib * MIB or not await asyncio.to_thread(_is_erofs, output):
            return failed("build:lost", BuildPhase.PACKING, "the builder left no usable image")
        await asyncio.to_thread(os.truncate, output, verdict.size_bytes)
        digest = await self._images.add(output)
        return BuiltImage(digest=digest, size_bytes=verdict.size_bytes, kind=verdict.kind, command=verdict.command)


class _Following:
    """Hands a builder's news on, bounded, and keeps the phase."""

    def __init__(self, watch: BuildWatch) -> None:
        self._watch = watch
        self._lines = 0
        self.phase = BuildPhase.BOOTING

    def take(self, item: dict[str, object]) -> Verdict | Failure | None:
        match item:
            case {"line": str(line)}:
                self._lines += 1
                if self._lines <= MAX_LINES:
                    self._watch.line(sanitise(line))
            case {"phase": ("detecting" | "installing" | "building" | "packing") as phase}:
                self.phase = BuildPhase(phase)
                self._watch.phase(self.phase)
            case {"done": dict(done)}:
                return Verdict.read(done) or failed("build:lost", self.phase, "the builder's verdict makes no sense")
            case {"failed": {"code": str(code), "message": str(message)}}:
                return failed(code, self.phase, sanitise(message))
            case _:
                return failed("build:lost", self.phase, "the builder's news makes no sense")
        return None


async def _unless_it_ends(
    vm: Vm, conversation: Coroutine[object, object, Verdict | Failure | None]
) -> Verdict | Failure | None:
    """The conversation's result, or None when the machine ends first."""
    talk = spawn(conversation, name="build-conversation")
    end = spawn(vm.exited.wait(), name="build-machine-end")
    try:
        await asyncio.wait({talk, end}, return_when=asyncio.FIRST_COMPLETED)
        return talk.result() if talk.done() else None
    finally:
        talk.cancel()
        end.cancel()
        await asyncio.wait({talk, end}, timeout=END_TIMEOUT_S)


def _is_erofs(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(EROFS_SUPERBLOCK_AT)
        return file.read(len(EROFS_MAGIC)) == EROFS_MAGIC


def _console(vm: Vm) -> str:
    tail = [line for line in vm.console_tail().splitlines() if line.strip()][-CONSOLE_TAIL_LINES:]
    return "; its console ended with: " + " | ".join(sanitise(line) for line in tail) if tail else ""
