"""All machines of a host: who exists, which slot, and when the host is full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hosts.agent import fleet
from hosts.agent.fleet import HostFull, Slots, SpecDiffers
from hosts.wire.spec import Policy
from hosts.wire.states import MachineState
from tests.hosts.agent.rig import ID, Rig, spec


async def test_declaring_the_same_machine_again_changes_nothing(rig: Rig) -> None:
    machine = await rig.machine()
    again, created = await rig.fleet.create(spec())
    assert (again, created) == (machine, False)
    assert rig.world.boots == 1


async def test_another_machine_under_the_same_id_is_refused(rig: Rig) -> None:
    await rig.machine()
    with pytest.raises(SpecDiffers):
        await rig.fleet.create(spec(release=2))


async def test_a_policy_is_no_difference(rig: Rig) -> None:
    machine = await rig.machine()
    again, created = await rig.fleet.create(spec(policy=Policy(5, 5)))
    assert (again, created) == (machine, False)
    assert machine.spec.policy == spec().policy


async def test_slots_are_given_lowest_first_and_given_back(rig: Rig) -> None:
    machines = [await rig.machine(f"{n:032x}") for n in range(3)]
    assert [m.history.record.slot for m in machines] == [0, 1, 2]
    await rig.fleet.destroy(machines[1].spec.machine_id)
    assert (await rig.machine("9" * 32)).history.record.slot == 1


async def test_a_machine_destroyed_twice_at_once_does_not_touch_its_slots_next_owner(rig: Rig) -> None:
    await rig.machine()
    await asyncio.gather(rig.fleet.destroy(ID), rig.fleet.destroy(ID))
    heir = await rig.machine("2" * 32)
    assert heir.history.record.slot == 0
    assert rig.world.namespaces == {0}


async def test_the_same_machine_declared_many_times_at_once_is_made_once(rig: Rig) -> None:
    answers = await asyncio.gather(*(rig.fleet.create(spec()) for _ in range(10)))
    assert [created for _, created in answers].count(True) == 1
    assert len({id(machine) for machine, _ in answers}) == 1


async def test_a_host_without_room_refuses_and_keeps_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, wanted: int) -> None:
        raise OSError(28, "64 MiB wanted, 3 MiB free")

    monkeypatch.setattr(fleet, "require_free", full)
    with pytest.raises(HostFull, match="3 MiB free"):
        await rig.fleet.create(spec())
    assert rig.fleet.all() == []
    assert rig.slots.used == frozenset()


async def test_room_on_the_disk_is_promised_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted_mib: list[int] = []
    monkeypatch.setattr(fleet, "require_free", lambda _, size: wanted_mib.append(size >> 20))
    boots = rig.parts.limits.cold_boots
    await boots.acquire()
    await boots.acquire()
    made = [(await rig.fleet.create(spec(digit * 32)))[0] for digit in "12"]
    boots.release()
    boots.release()
    for machine in made:
        await rig.settle(machine, MachineState.RUNNING)
    await rig.machine("3" * 32)
    assert wanted_mib == [72, 72 + 64, 72], "what was promised, until its memory file is there"


def test_when_all_slots_are_taken_the_host_is_full() -> None:
    slots = Slots(2)
    assert (slots.take(), slots.take()) == (0, 1)
    with pytest.raises(HostFull, match="all 2 slots"):
        slots.take()
    slots.free(0)
    assert slots.claim(0)
    assert not slots.claim(0)
