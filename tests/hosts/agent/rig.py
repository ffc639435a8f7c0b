"""An agent over a fake world, put together as `hosts.agent.start` does it, with time in the test's hand."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from hosts.agent.budget import Budget, BudgetedVmm
from hosts.agent.durable import Scribe
from hosts.agent.fleet import Fleet, Slots
from hosts.agent.idle import Idler
from hosts.agent.journal import Journal
from hosts.agent.machine import Machine
from hosts.agent.parts import BaseImage, Limits, Parts
from hosts.agent.reclaim import reclaim
from hosts.agent.recover import carry_on, recover
from hosts.agent.start import DiskSnapshots
from hosts.agent.streams import Streams
from hosts.vmm.protocol import Boot, Disk
from hosts.wire.events import Event
from hosts.wire.spec import ImageDigest, MachineId, MachineSpec, Policy, Process, Size
from hosts.wire.states import MachineState
from tests.fakes.clock import FakeClock
from tests.fakes.guest import FakeGuest
from tests.fakes.network import FakeNetwork
from tests.fakes.vmm import FakeVmm
from tests.fakes.world import App, World

IMAGE = ImageDigest("a" * 64)
ID = MachineId("1" * 32)
SETTLE_S = 5.0
PLENTY_MIB = 1 << 20


class FakeImages:
    """Every image is there; none has a byte."""

    def has(self, digest: ImageDigest) -> bool:
        return digest == IMAGE

    def path(self, digest: ImageDigest) -> Path:
        return Path("/nonexistent") / digest

    def reclaim(self) -> None:
        return


class FakeVolumes:
    """A few bytes stand for a disk."""

    def make(self, path: Path, size_mib: int, uid: int) -> None:
        path.write_bytes(b"disk" * 1000)


class FakeBaseImages:
    """One base image, whatever is asked for."""

    def find(self, digest: str) -> BaseImage | None:
        none = Path("/nonexistent")
        return BaseImage(
            "b" * 64, Boot(none / "vmlinuz", none / "initramfs", "quiet"), Disk("base", none, read_only=True)
        )


def spec(machine_id: str = ID, **changes: object) -> MachineSpec:
    made = MachineSpec(
        machine_id=MachineId(machine_id),
        app="blog",
        release=1,
        image=IMAGE,
        process=Process("python app.py"),
        size=Size(memory_mib=64, disk_mib=64),
        policy=Policy(idle_period_s=60, suspend_after_s=300),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


class Rig:
    """One agent's lifetime on a host."""

    def __init__(
        self,
        folder: Path,
        world: World | None = None,
        clock: FakeClock | None = None,
        *,
        budget: Budget | None = None,
    ) -> None:
        self.folder = folder
        self.world = world or World()
        self.clock = clock or FakeClock()
        self.scribe = Scribe()
        self.vmm = FakeVmm(self.world)
        self.budget = budget or Budget(PLENTY_MIB)
        self.network = FakeNetwork(self.world)
        (folder / "machines").mkdir(exist_ok=True)
        self.journal = Journal(folder / "journal", self.scribe, new_journal_id="j")
        self.parts = Parts(
            machines=folder / "machines",
            vmm=BudgetedVmm(self.vmm, self.budget),
            network=self.network,
            images=FakeImages(),
            volumes=FakeVolumes(),
            snapshots=DiskSnapshots(),
            base_images=FakeBaseImages(),
            guest=lambda open_agent, _: FakeGuest(self.world, open_agent),
            uid_of=lambda slot: 0,
            clock=self.clock,
            scribe=self.scribe,
            journal=self.journal,
            limits=Limits(asyncio.Semaphore(2), asyncio.Semaphore(2)),
        )
        self.slots = Slots()
        self._closed = False
        self.fleet = Fleet(self.parts, self.slots, self.budget)
        self.idler = Idler(self.fleet.all, self.clock, pressed=lambda: self.budget.pressed)
        self.budget.relieve = self.idler.relieve
        self.streams = Streams(find=self.fleet.find, machines=self.fleet.all, api_socket=folder / "agent.sock")

    async def recover(self, *, alive_ms: int | None = None) -> None:
        """What a new agent does first."""
        found = await recover(self.parts, self.slots, alive_ms=self.clock.wall_ms() if alive_ms is None else alive_ms)
        self.fleet.adopt([one.machine for one in found])
        await reclaim(
            self.fleet.all(),
            processes=self.vmm,
            network=self.network,
            images=FakeImages(),
            builds=self.folder / "builds",
            scribe=self.scribe,
        )
        carry_on(found)

    async def successor(self, *, alive_ms: int | None = None) -> Rig:
        """This agent is gone, as by kill -9; the next one over the same disk and processes."""
        for process in self.world.processes:
            process.on_exit.clear()
        await self.close()
        rig = Rig(self.folder, self.world, self.clock, budget=Budget(self.budget.total_mib))
        await rig.recover(alive_ms=alive_ms)
        return rig

    async def machine(self, machine_id: str = ID, *, app: App | None = None, **changes: object) -> Machine:
        """A machine that has booted, or failed to."""
        if app is not None:
            self.world.apps[machine_id] = app
        machine, _ = await self.fleet.create(spec(machine_id, **changes))
        await self.settle(machine, MachineState.RUNNING, MachineState.FAILED)
        return machine

    async def settle(self, machine: Machine, *states: MachineState) -> None:
        """Wait until the machine is in one of these states and nobody has its turn."""
        async with asyncio.timeout(SETTLE_S):
            await machine.history.wait_until(lambda: machine.history.state in states)
            async with machine.turn:
                pass

    async def request(self, machine: Machine, *, may_wake: bool = True) -> int:
        """One HTTP request through a stream; the app's count."""
        target = await self.streams.open_machine(machine.spec.machine_id, may_wake=may_wake, request="r")
        loop = asyncio.get_running_loop()
        try:
            target.gate.touch()
            if not target.gate.is_open():
                await target.gate.wait()
            await loop.sock_sendall(target.sock, b"GET / HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(SETTLE_S):
                answer = await loop.sock_recv(target.sock, 65536)
        finally:
            target.sock.close()
        return int(answer.rpartition(b"\r\n\r\n")[2])

    async def events(self) -> list[Event]:
        """Everything the journal holds."""
        return list(await self.journal.batch())

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self.journal.close()
            self.scribe.close()
