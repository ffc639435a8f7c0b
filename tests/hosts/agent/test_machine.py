"""A machine's verbs: destroyed in any state, waited for by many, its record on disk equal to the one in memory."""

from __future__ import annotations

import asyncio

import pytest

from hosts.agent.machine import Machine
from hosts.agent.starts import Gone
from hosts.wire.allowlist import AllowedName
from hosts.wire.commands import SleepDepth
from hosts.wire.events import Cause, Event, EventKind
from hosts.wire.spec import Egress, Policy
from hosts.wire.states import MachineState
from tests.fakes.world import App
from tests.hosts.agent.rig import ID, Rig, spec

S = MachineState


def states(events: list[Event]) -> list[str]:
    return [str(e.state) for e in events if e.kind is EventKind.STATE]


@pytest.mark.parametrize("depth", [None, *SleepDepth])
async def test_nothing_is_left_of_a_destroyed_machine(rig: Rig, depth: SleepDepth | None) -> None:
    machine = await rig.machine()
    if depth is not None:
        await machine.sleep(depth)
    await rig.fleet.destroy(ID)
    assert rig.world.alive() == []
    assert rig.world.namespaces == set()
    assert list(rig.parts.machines.iterdir()) == []
    assert rig.slots.used == frozenset()
    assert rig.fleet.find(ID) is None
    assert states(await rig.events())[-1] == "destroyed"
    await rig.fleet.destroy(ID)
    with pytest.raises(Gone):
        await machine.wake(Cause.API, deadline_s=1)


async def test_a_machine_can_be_destroyed_in_the_middle_of_its_boot(rig: Rig) -> None:
    rig.world.apps[ID] = App(hello_hangs=True)
    machine, _ = await rig.fleet.create(spec())
    while not rig.world.alive(ID):
        await asyncio.sleep(0.001)
    waiting = asyncio.get_running_loop().create_task(machine.wake(Cause.API, deadline_s=5))
    await asyncio.sleep(0)
    await rig.fleet.destroy(ID)
    with pytest.raises(Gone):
        await waiting
    assert rig.world.alive() == []
    assert list(rig.parts.machines.iterdir()) == []


async def test_who_gives_up_waiting_does_not_end_the_start(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    with pytest.raises(TimeoutError):
        await machine.wake(Cause.REQUEST, deadline_s=0)
    await rig.settle(machine, S.RUNNING)


async def test_a_policy_changes_at_once_and_survives(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.set_policy(Policy(5, 10, Egress.OPEN))
    assert rig.network.egress[machine.history.record.slot] is Egress.OPEN
    assert machine.files.load()[0].policy == Policy(5, 10, Egress.OPEN)
    for allow in ((AllowedName("a.example"),), (AllowedName("b.example"),)):
        await machine.set_policy(Policy(5, 10, Egress.ALLOWLIST, allow))
        assert rig.network.allow[machine.history.record.slot] == allow, "another list is a change, too"
        assert machine.files.load()[0].policy.egress_allow == allow


async def test_the_record_on_disk_is_the_record_in_memory(rig: Rig) -> None:
    machine: Machine = await rig.machine()
    for depth in (SleepDepth.PAUSED, SleepDepth.SUSPENDED):
        await machine.sleep(depth)
        assert machine.files.load() == (machine.spec, machine.history.record)
        await rig.request(machine)
        await rig.settle(machine, S.RUNNING)
        assert machine.files.load() == (machine.spec, machine.history.record)


async def test_a_machine_just_declared_is_booting_to_whoever_asks(rig: Rig) -> None:
    machine, _ = await rig.fleet.create(spec())
    assert (await machine.report()).state is S.BOOTING
    assert (await machine.report(wait_s=5)).state is S.RUNNING
