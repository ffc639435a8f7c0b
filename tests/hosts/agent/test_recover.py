"""An agent that dies at any line: what its successor finds, and what becomes of it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.agent import recover
from hosts.agent.machine import Machine
from hosts.wire.commands import SleepDepth, Start
from hosts.wire.events import EventKind
from hosts.wire.states import MachineState
from tests.fakes.world import App
from tests.hosts.agent.rig import ID, Rig, spec
from tunnel.wire import Refused

S = MachineState
WITH_MEMORY = (S.RUNNING, S.PAUSED, S.SUSPENDING, S.SUSPENDED, S.RESUMING)


def recorded(machine: Machine, state: MachineState) -> None:
    """What the dead agent's record said."""
    machine.files.save(replace(machine.history.record, state=state))


async def test_a_running_machine_runs_on_and_is_adopted(rig: Rig) -> None:
    machine = await rig.machine()
    count = await rig.request(machine)
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    await heir.settle(adopted, S.RUNNING)
    assert await heir.request(adopted) == count + 1
    assert heir.world.boots == 1
    events = await heir.events()
    assert len([e for e in events if e.kind is EventKind.SESSION_STARTED]) == 1
    assert not [e for e in events if e.kind is EventKind.SESSION_ENDED]
    await heir.close()


@pytest.mark.parametrize(("said", "runs"), list(itertools.product(WITH_MEMORY, [True, False])))
async def test_a_process_that_lives_keeps_its_memory_whatever_the_record_says(
    rig: Rig,
    said: MachineState,
    runs: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    machine = await rig.machine()
    count = await rig.request(machine)
    process = rig.world.alive(ID)[0]
    process.set_running(runs)
    recorded(machine, said)
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    await heir.settle(adopted, S.RUNNING if runs else S.PAUSED)
    assert await heir.request(adopted) == count + 1
    assert (heir.world.boots, len(heir.world.alive(ID))) == (1, 1)
    await heir.close()


@pytest.mark.parametrize("runs", [True, False])
async def test_a_network_that_cannot_be_made_just_now_costs_no_memory(rig: Rig, *, runs: bool) -> None:
    machine = await rig.machine()
    count = await rig.request(machine)
    rig.world.alive(ID)[0].set_running(runs)
    rig.world.network_failures = 3
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    while rig.world.network_failures:
        await rig.clock.advance(1)
    await rig.clock.advance(10)
    await heir.settle(adopted, S.RUNNING if runs else S.PAUSED)
    assert await heir.request(adopted) == count + 1
    assert (heir.world.boots, len(heir.world.alive(ID))) == (1, 1)
    await heir.close()


async def test_a_network_that_stays_away_ends_in_a_cold_boot_that_says_so(rig: Rig) -> None:
    await rig.machine()
    rig.world.network_failures = recover.NETWORK_TRIES
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    while adopted.history.state is not S.STOPPED:
        await rig.clock.advance(20)
    assert "network" in adopted.history.record.memory_lost
    await heir.close()


async def test_a_paused_machine_without_a_network_stays_paused_for_the_next_request(rig: Rig) -> None:
    machine = await rig.machine()
    count = await rig.request(machine)
    await machine.sleep(SleepDepth.PAUSED)
    rig.world.network_failures = 100
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    with pytest.raises(Refused, match="resume:host"):
        await heir.request(adopted)
    assert adopted.history.state is S.PAUSED
    rig.world.network_failures = 0
    await rig.clock.advance(2)
    assert await heir.request(adopted) == count + 1
    assert heir.world.boots == 1
    await heir.close()


@pytest.mark.parametrize("said", WITH_MEMORY)
async def test_a_pair_without_a_process_is_a_suspended_machine(rig: Rig, said: MachineState) -> None:
    machine = await rig.machine()
    count = await rig.request(machine)
    await machine.sleep(SleepDepth.SUSPENDED)
    await machine.stop_hashing()
    recorded(machine, said)
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    assert adopted.history.state is S.SUSPENDED
    assert await heir.request(adopted) == count + 1
    await heir.close()


@pytest.mark.parametrize("said", WITH_MEMORY)
async def test_neither_process_nor_pair_means_the_memory_is_lost_and_it_says_so(rig: Rig, said: MachineState) -> None:
    machine = await rig.machine()
    recorded(machine, said)
    rig.world.alive(ID)[0].on_exit.clear()
    rig.world.alive(ID)[0].end()
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    assert adopted.history.state is S.STOPPED
    await heir.request(adopted)
    report = (await adopted.report()).last_start
    assert report is not None
    assert report.start is Start.COLD_BOOT
    assert report.reason == "its VMM ended while the host agent was away"
    await heir.close()


async def test_a_pair_beside_a_living_process_is_dropped_before_its_vcpus_may_run(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    # The agent died after the manifest was durable and before it ended the process.
    vm = machine.vm
    assert vm is not None
    config = machine.vm_config(await machine.network())
    kill = vm.kill

    async def no_kill() -> None:
        return

    vm.kill = no_kill  # type: ignore[method-assign]
    await rig.parts.snapshots.suspend(vm, machine.snapshot, machine.identity(config), now_ms=1)
    vm.kill = kill  # type: ignore[method-assign]
    assert rig.parts.snapshots.has_pair(machine.snapshot)
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    assert adopted.history.state is S.PAUSED
    assert not heir.parts.snapshots.has_pair(adopted.snapshot)
    await heir.request(adopted)
    assert heir.world.loads == 0
    await heir.close()


async def test_the_session_of_a_machine_that_died_unseen_ends_at_the_last_proof_of_life(rig: Rig) -> None:
    await rig.machine()
    await rig.clock.advance(100)
    alive_ms = rig.clock.wall_ms()
    await rig.clock.advance(5000)
    rig.world.alive(ID)[0].end()
    heir = await rig.successor(alive_ms=alive_ms)
    (ended,) = [e for e in await heir.events() if e.kind is EventKind.SESSION_ENDED]
    assert ended.ended_at_ms == alive_ms
    assert str(ended.end_cause) == "crash"
    await heir.close()


async def test_a_process_nobody_noted_is_ended_and_the_snapshot_it_was_loaded_from_serves_again(rig: Rig) -> None:
    machine = await rig.machine()
    count = await rig.request(machine)
    await machine.sleep(SleepDepth.SUSPENDED)
    await machine.stop_hashing()
    config = machine.vm_config(await machine.network())
    await rig.vmm.load(config, machine.snapshot.state)  # and here the agent died
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    assert heir.world.alive() == []
    assert await heir.request(adopted) == count + 1
    await heir.close()


async def test_a_boot_under_way_is_taken_up_where_it_is(rig: Rig) -> None:
    machine = await rig.machine()
    recorded(machine, S.BOOTING)
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    await heir.settle(adopted, S.RUNNING)
    assert heir.world.boots == 1
    await heir.close()


async def test_a_first_boot_whose_process_died_is_begun_anew(rig: Rig) -> None:
    machine = await rig.machine()
    machine.files.save(replace(machine.history.record, state=S.BOOTING, proven=False))
    rig.world.alive(ID)[0].end()
    heir = await rig.successor()
    await heir.settle(heir.fleet.all()[0], S.RUNNING)
    assert heir.world.boots == 2
    await heir.close()


async def test_a_machine_declared_but_never_booted_is_booted(rig: Rig) -> None:
    machine = await rig.machine()
    record = replace(machine.history.record, state=S.STOPPED, proven=False, process=None, session=None)
    machine.files.save(record)
    heir = await rig.successor()
    await heir.settle(heir.fleet.all()[0], S.RUNNING)
    assert len(heir.world.alive(ID)) == 1
    await heir.close()


async def test_a_failed_machine_stays_failed(rig: Rig) -> None:
    await rig.machine(app=App(listens=False))
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    report = await adopted.report()
    assert report.state is S.FAILED
    assert report.failure is not None
    assert report.failure.code == "check:not_listening"
    await heir.close()


async def test_a_destruction_that_was_begun_is_finished(rig: Rig) -> None:
    machine = await rig.machine()
    machine.files.save(replace(machine.history.record, state=S.DESTROYED))
    rig.world.alive(ID)[0].end()
    heir = await rig.successor()
    await heir.fleet.destroy(ID)
    assert list(heir.parts.machines.iterdir()) == []
    await heir.close()


async def test_a_folder_without_a_spec_is_no_machine_and_is_removed(rig: Rig) -> None:
    folder = rig.parts.machines / ("2" * 32)
    folder.mkdir()
    (folder / "state.json").write_text("{}")
    (folder / "memory").write_bytes(b"x")
    heir = await rig.successor()
    assert heir.fleet.all() == []
    assert not folder.exists()
    await heir.close()


@pytest.mark.parametrize("name", ["spec.json", "state.json"])
@pytest.mark.parametrize("text", ["", "{}", "not json", json.dumps({"format": 99})])
async def test_a_damaged_machine_is_set_aside_and_the_others_live(rig: Rig, name: str, text: str) -> None:
    machine = await rig.machine()
    other, _ = await rig.fleet.create(spec("2" * 32))
    await rig.settle(other, S.RUNNING)
    (machine.files.folder / name).write_text(text)
    heir = await rig.successor()
    assert [m.spec.machine_id for m in heir.fleet.all()] == ["2" * 32]
    assert (rig.parts.machines / f"damaged-{ID}").exists()
    assert len(heir.world.alive()) == 1
    await heir.close()


async def test_slots_and_leftovers_of_nobody_are_given_back(rig: Rig, tmp_path: Path) -> None:
    machine = await rig.machine()
    rig.world.namespaces |= {7, 8}
    (tmp_path / "builds" / "old").mkdir(parents=True)
    heir = await rig.successor()
    assert heir.world.namespaces == {machine.history.record.slot}
    assert heir.slots.used == frozenset({machine.history.record.slot})
    assert not (tmp_path / "builds").exists()
    await heir.close()


async def test_events_of_before_and_after_the_restart_are_in_one_journal(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    heir = await rig.successor()
    await heir.request(heir.fleet.all()[0])
    events = await heir.events()
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert len({e.event_id for e in events}) == len(events)
    await heir.close()
