"""A host with little memory: who gets it, who gives it back, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hosts.agent import budget as module
from hosts.agent.budget import VMM_MIB, Budget, HostMemoryFull, machine_memory_mib
from hosts.agent.fleet import HostFull
from hosts.agent.machine import Machine
from hosts.agent.starts import StartFailed
from hosts.wire.commands import SleepDepth
from hosts.wire.events import Cause
from hosts.wire.states import MachineState as S
from tests.hosts.agent.rig import Rig, spec

ONE = 64 + VMM_MIB  # what a machine of the rig's size takes
IDS = [f"{n:032x}" for n in range(1, 9)]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.02)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Rig]:
    """A host with room for two machines."""
    rig = Rig(tmp_path, budget=Budget(2 * ONE + 10))
    yield rig
    await rig.close()


async def sleeping(rig: Rig, machine_id: str, depth: SleepDepth = SleepDepth.PAUSED) -> Machine:
    machine = await rig.machine(machine_id)
    await machine.sleep(depth)
    return machine


async def test_a_full_host_refuses_a_new_machine_and_leaves_those_that_run_alone(small: Rig) -> None:
    running = [await small.machine(machine_id) for machine_id in IDS[:2]]
    with pytest.raises(HostFull, match=f"memory is full: {ONE} MiB wanted, 10 of {2 * ONE + 10} MiB free"):
        await small.fleet.create(spec(IDS[2]))
    assert small.fleet.find(spec(IDS[2]).machine_id) is None
    assert [machine.history.state for machine in running] == [S.RUNNING, S.RUNNING]
    assert all([await small.request(machine) for machine in running])


async def test_the_longest_asleep_makes_room_and_only_as_many_as_it_takes(small: Rig) -> None:
    first = await sleeping(small, IDS[0])
    await small.clock.advance(10)
    second = await sleeping(small, IDS[1])
    await small.machine(IDS[2])
    assert (first.history.state, second.history.state) == (S.SUSPENDED, S.PAUSED)
    await small.machine(IDS[3])
    assert second.history.state is S.SUSPENDED


async def test_a_wake_that_finds_no_room_is_refused_with_its_memory_kept(small: Rig) -> None:
    asleep = await sleeping(small, IDS[0], SleepDepth.SUSPENDED)
    before = [await small.machine(machine_id) for machine_id in IDS[1:3]]
    with pytest.raises(StartFailed) as refused:
        await asleep.wake(Cause.REQUEST, deadline_s=5)
    assert refused.value.failure.code == "host:full"
    assert asleep.history.state is S.SUSPENDED
    await before[0].sleep(SleepDepth.SUSPENDED)
    await small.clock.advance(60)
    await asleep.wake(Cause.REQUEST, deadline_s=5)
    assert small.world.loads == 1, "it went on where it was"


async def test_a_full_host_is_no_failed_start_of_a_machine_that_once_worked(small: Rig) -> None:
    crashed = await small.machine(IDS[0])
    small.world.alive(crashed.spec.machine_id)[0].end()
    await small.settle(crashed, S.STOPPED)
    others = [await small.machine(machine_id) for machine_id in IDS[1:3]]
    for _ in range(5):
        await small.clock.advance(120)
        with pytest.raises(StartFailed):
            await crashed.wake(Cause.REQUEST, deadline_s=5)
        assert crashed.history.state is S.STOPPED, "and not failed"
    assert {machine.history.state for machine in others} == {S.RUNNING}


async def test_room_that_is_given_back_meanwhile_is_taken(small: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 5.0)
    running = [await small.machine(machine_id) for machine_id in IDS[:2]]
    creating = asyncio.ensure_future(small.fleet.create(spec(IDS[2])))  # noqa: TID251 - ended below
    await asyncio.sleep(0.02)
    assert not creating.done()
    await small.fleet.destroy(running[0].spec.machine_id)
    machine, created = await creating
    await small.settle(machine, S.RUNNING)
    assert created


async def test_under_pressure_paused_machines_are_suspended_before_their_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, budget=Budget(4 * ONE))
    machines = [await sleeping(rig, machine_id) for machine_id in IDS[:2]]
    idler = rig.idler
    for _ in range(3):
        idler.look()
        await asyncio.sleep(0.01)
    assert {m.history.state for m in machines} == {S.PAUSED}, "there is room enough"
    await rig.clock.advance(1)
    runs = [await rig.machine(machine_id) for machine_id in IDS[2:4]]
    assert rig.budget.pressed
    for _ in range(3):
        idler.look()
        while idler.busy:
            await asyncio.sleep(0.001)
    assert machines[0].history.state is S.SUSPENDED
    assert machines[1].history.state is S.PAUSED, "one was enough"
    assert {m.history.state for m in runs} == {S.RUNNING}
    await rig.close()


async def test_a_new_agent_counts_what_it_finds_running(small: Rig) -> None:
    await small.machine(IDS[0])
    await sleeping(small, IDS[1])
    heir = await small.successor()
    assert heir.budget.free_mib == 10
    await heir.close()


async def test_a_failed_start_gives_its_memory_back(small: Rig) -> None:
    small.vmm.fail_boot = "no kernel"
    machine = await small.machine(IDS[0])
    assert machine.history.state is S.FAILED
    assert small.budget.free_mib == small.budget.total_mib


async def test_more_than_the_host_has_is_refused_at_once() -> None:
    with pytest.raises(HostMemoryFull, match="200 MiB wanted, 100 of 100 MiB free"):
        await Budget(100).take(200, patience_s=1000)


def test_the_rest_of_the_host_keeps_its_share(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:        4046848 kB\nMemFree:          152000 kB\n")
    assert machine_memory_mib(meminfo) == 2928
    meminfo.write_text("MemTotal:        1046848 kB\n")
    assert machine_memory_mib(meminfo) == module.LEAST_MIB
