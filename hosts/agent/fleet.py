"""All machines of this host: who exists, which slot each one has, and what may still be taken on.

A machine exists from the moment its spec is on disk until its folder is gone; in between the dict here is the only
index. Slots (network namespace, uid) are given out lowest first and are free again only when nothing of the machine
is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from hosts.agent.budget import VMM_MIB, Budget, HostMemoryFull
from hosts.agent.machine import Machine
from hosts.agent.parts import Parts
from hosts.agent.record import RECORD_FORMAT, MachineRecord
from hosts.disk.space import require_free
from hosts.net.addresses import MAX_SLOTS
from hosts.wire.events import Cause
from hosts.wire.spec import MachineId, MachineSpec
from hosts.wire.states import MachineState

MIB = 1024 * 1024


class SpecDiffers(Exception):  # noqa: N818 - reads as the fact it states
    """There is a machine of that id with another spec."""


class HostFull(Exception):  # noqa: N818 - reads as the fact it states
    """The host cannot take on another machine; the text says for want of what."""


class Slots:
    """Small numbers, each used by at most one machine or build."""

    def __init__(self, size: int = MAX_SLOTS) -> None:
        self._size = size
        self._used: set[int] = set()

    @property
    def used(self) -> frozenset[int]:
        """What is taken."""
        return frozenset(self._used)

    def take(self) -> int:
        """The lowest free one, or HostFull."""
        slot = next((n for n in range(self._size) if n not in self._used), None)
        if slot is None:
            raise HostFull(f"all {self._size} slots are taken")
        self._used.add(slot)
        return slot

    def claim(self, slot: int) -> bool:
        """Take this one; False if it is taken already."""
        if slot in self._used:
            return False
        self._used.add(slot)
        return True

    def free(self, slot: int) -> None:
        """Give it back."""
        self._used.discard(slot)


class Fleet:
    """The machines of this host."""

    def __init__(self, parts: Parts, slots: Slots, budget: Budget) -> None:
        self.parts = parts
        self.slots = slots
        self._budget = budget
        self._machines: dict[MachineId, Machine] = {}
        self._creating = asyncio.Lock()

    def find(self, machine_id: MachineId) -> Machine | None:
        """The machine of that id."""
        return self._machines.get(machine_id)

    def all(self) -> list[Machine]:
        """Every machine."""
        return list(self._machines.values())

    def adopt(self, machines: Iterable[Machine]) -> None:
        """Machines found at the start; their slots are claimed already."""
        for machine in machines:
            self._machines[machine.spec.machine_id] = machine

    async def create(self, spec: MachineSpec) -> tuple[Machine, bool]:
        """Make a machine and start to boot it; (it, False) if it is there already. SpecDiffers, HostFull."""
        async with self._creating:
            present = self._machines.get(spec.machine_id)
            if present is not None:
                if replace(spec, policy=present.spec.policy) != present.spec:
                    raise SpecDiffers
                return present, False
            machine = await self._make(spec)
        machine.start_soon(Cause.DEPLOY)
        return machine, True

    async def _make(self, spec: MachineSpec) -> Machine:
        parts = self.parts
        try:
            await self._budget.make_room(spec.size.memory_mib + VMM_MIB)
            # What a machine surely takes: its memory file (reserved at boot) and the beginnings of a disk. The rest
            # is sparse. Those that were taken on and have not booted yet will take theirs.
            wanted_mib = spec.size.memory_mib + spec.size.disk_mib // 8
            await parts.scribe.run(self._require_disk, wanted_mib)
        except (OSError, HostMemoryFull) as e:
            raise HostFull(str(e)) from None
        slot = self.slots.take()
        record = MachineRecord(RECORD_FORMAT, MachineState.STOPPED, parts.clock.wall_ms(), slot)
        machine = Machine(spec, record, parts)
        try:
            await parts.scribe.run(machine.files.create, spec, record)
        except OSError as e:
            self.slots.free(slot)
            raise HostFull(f"the machine's folder could not be made: {e}") from None
        self._machines[spec.machine_id] = machine
        return machine

    def _require_disk(self, wanted_mib: int) -> None:
        promised_mib = sum(m.spec.size.memory_mib for m in self.all() if not m.snapshot.memory.exists())
        require_free(self.parts.machines, (wanted_mib + promised_mib) * MIB)

    async def destroy(self, machine_id: MachineId) -> None:
        """Nothing of that machine is left when it returns; nothing happens if there is none."""
        machine = self._machines.get(machine_id)
        if machine is None:
            return
        await machine.destroy()
        if self._machines.get(machine_id) is machine:
            del self._machines[machine_id]
            self.slots.free(machine.history.record.slot)
