"""One tiny guest as a machine: its config, files and namespace, and a way to run a shell line in it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hosts.disk.clone import clone
from hosts.disk.volumes import VolumeMaker
from hosts.net.addresses import GUEST_MAC, machine_uid
from hosts.net.network import Namespace, Network
from hosts.snapshots.files import Identity, SnapshotFiles
from hosts.vmm.protocol import Disk, VmConfig
from hosts.vmm.qemu import Qemu, QemuVm
from hosts.wire.spec import Egress, ImageDigest, MachineId
from tests.hosts.tiny_guest import PORT, tiny_guest

MEMORY_MIB = 128
DISK_MIB = 64
BOOT_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 0.5
POLL_S = 0.05

COUNT = "n=$(cat /counter); n=$((n+1)); echo $n > /counter; echo $n"


class MakeMachine(Protocol):
    """The fixture `make_machine`."""

    async def __call__(self, name: str = "a", *, slot: int = 1, folder: Path | None = None) -> TinyMachine: ...


@dataclass
class TinyMachine:
    """A machine and, once booted or loaded, its VM."""

    qemu: Qemu
    network: Network
    namespace: Namespace
    config: VmConfig
    files: SnapshotFiles
    booted: SnapshotFiles  # of the whole run: a machine that has just booted
    vms: list[QemuVm] = field(default_factory=list)

    @classmethod
    async def make(
        cls, *, network: Network, qemu: Qemu, instance: str, slot: int, folder: Path, booted: SnapshotFiles
    ) -> TinyMachine:
        folder.mkdir(mode=0o700, exist_ok=True)
        files, uid, guest = SnapshotFiles(folder), machine_uid(instance, slot), tiny_guest()
        VolumeMaker(folder / "templates").make(files.disk, DISK_MIB, uid)
        namespace = await network.ensure(slot, Egress.NONE, uid)
        config = VmConfig(
            name=f"tiny-{slot}",
            folder=folder,
            memory_mib=MEMORY_MIB,
            vcpus=1,
            boot=guest.boot,
            disks=(Disk("data", files.disk, read_only=False),),
            mac=GUEST_MAC,
            netns=namespace.name,
            uid=uid,
        )
        return cls(qemu=qemu, network=network, namespace=namespace, config=config, files=files, booted=booted)

    @property
    def vm(self) -> QemuVm:
        """The newest one."""
        return self.vms[-1]

    @property
    def identity(self) -> Identity:
        return Identity(
            machine_id=MachineId("0" * 32),
            vmm_version=self.qemu.version,
            arguments_sha256=self.qemu.arguments_sha256(self.config),
            base="base",
            image=ImageDigest("1" * 64),
        )

    async def start(self) -> QemuVm:
        """Start to boot: quick, for tests that need a process and no guest."""
        self.vms.append(await self.qemu.boot(self.config))
        return self.vm

    async def boot(self) -> QemuVm:
        """Let it answer. A kernel is booted once in a run: every later machine goes on from a copy of that instant."""
        if self.booted.state.exists():
            for name in ("memory", "disk", "state"):
                target = self.files.folder / name
                target.unlink(missing_ok=True)
                clone(self.booted.folder / name, target)
            await self.load()
            self.files.state.unlink()
            await self.vm.resume()
            await self.ask("echo hello")
            return self.vm
        await self.start()
        await self.ask("echo hello", timeout_s=BOOT_TIMEOUT_S)
        await self.vm.pause()
        self.booted.folder.mkdir()
        clone(self.files.memory, self.booted.memory)
        clone(self.files.disk, self.booted.disk)
        await self.vm.save(self.booted.state)
        await self.vm.resume()
        return self.vm

    async def load(self) -> QemuVm:
        """Load the device state that lies in its place."""
        self.vms.append(await self.qemu.load(self.config, self.files.state))
        return self.vm

    async def count(self) -> int:
        """Raise the counter in the guest's memory by one."""
        return int(await self.ask(COUNT))

    async def ask(self, line: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Run one shell line in the guest, trying until it answers."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return await self._ask_once(line, max(0.1, deadline - time.monotonic()))
            except (OSError, TimeoutError) as e:
                if time.monotonic() > deadline:
                    raise AssertionError(f"the guest does not answer ({e!r}): {self.vm.console_tail()}") from None
            await asyncio.sleep(POLL_S)

    async def _ask_once(self, line: str, timeout_s: float) -> str:
        loop = asyncio.get_running_loop()
        with await self.namespace.connect(PORT, CONNECT_TIMEOUT_S) as sock:
            async with asyncio.timeout(timeout_s):
                await loop.sock_sendall(sock, line.encode() + b"\n")
                answer = b""
                while data := await loop.sock_recv(sock, 4096):
                    answer += data
        return answer.decode().strip()

    async def end(self) -> None:
        """Every VM it ever had is gone."""
        for vm in self.vms:
            await vm.kill()
