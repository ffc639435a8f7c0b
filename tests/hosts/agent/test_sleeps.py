"""How a machine comes to rest, and who may call it off."""

from __future__ import annotations

import asyncio

import pytest

from hosts.agent.machine import Busy, NotRunning
from hosts.agent.sleeps import CheckpointFailed
from hosts.wire.commands import SleepDepth
from hosts.wire.events import EndCause, Event, EventKind
from hosts.wire.states import MachineState
from tests.fakes.world import App
from tests.hosts.agent.rig import ID, Rig

S = MachineState


def states(events: list[Event]) -> list[str]:
    return [str(e.state) for e in events if e.kind is EventKind.STATE]


def sessions(events: list[Event]) -> list[tuple[str, str]]:
    return [(str(e.cause), str(e.end_cause)) for e in events if e.kind is EventKind.SESSION_ENDED]


async def test_sleep_is_refused_while_something_is_in_flight(rig: Rig) -> None:
    machine = await rig.machine()
    rig.streams.activity("edge", ID, 1)

    async def asked() -> None:
        with pytest.raises(Busy):
            await machine.sleep(SleepDepth.PAUSED)

    asking = asyncio.get_running_loop().create_task(asked())
    for _ in range(200):
        await rig.clock.advance(0.01)
    await asking
    assert machine.history.state is S.RUNNING
    rig.streams.link_lost("edge")
    await machine.sleep(SleepDepth.PAUSED)


async def test_sleep_waits_a_moment_for_an_edges_word_that_the_request_has_ended(rig: Rig) -> None:
    machine = await rig.machine()
    rig.streams.activity("edge", ID, 1)
    sleeping = asyncio.get_running_loop().create_task(machine.sleep(SleepDepth.PAUSED))
    await rig.clock.advance(0.01)
    rig.streams.activity("edge", ID, 0)
    while not sleeping.done():
        await rig.clock.advance(0.01)
    assert machine.history.state is S.PAUSED


async def test_a_machine_without_memory_cannot_be_put_to_sleep(rig: Rig) -> None:
    machine = await rig.machine(app=App(listens=False))
    with pytest.raises(NotRunning):
        await machine.sleep(SleepDepth.PAUSED)


async def test_a_machine_deeper_asleep_stays_so(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    await machine.sleep(SleepDepth.PAUSED)
    assert machine.history.state is S.SUSPENDED


async def test_a_byte_that_comes_while_it_falls_asleep_calls_the_sleep_off(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await rig.machine()
    await rig.clock.advance(61)

    async def sync(timeout_s: float = 10.0, *, drop_caches: bool = False) -> None:
        machine.activity.touch()

    monkeypatch.setattr(machine.guest, "sync", sync)
    await machine.pause_if_idle()
    assert machine.history.state is S.RUNNING
    assert machine.gate_open


async def test_a_byte_that_comes_right_after_wakes_it_at_once(rig: Rig) -> None:
    machine = await rig.machine()
    await rig.clock.advance(61)
    _, answer = await asyncio.gather(machine.pause_if_idle(), rig.request(machine))
    assert answer
    assert machine.history.state is S.RUNNING


async def test_a_state_that_cannot_be_written_leaves_it_paused_and_whole(rig: Rig) -> None:
    machine = await rig.machine()
    before = await rig.request(machine)
    rig.vmm.fail_save = True
    await machine.sleep(SleepDepth.PAUSED)
    await machine.suspend_if_asleep()
    assert machine.history.state is S.PAUSED
    assert machine.suspend_not_before > rig.clock.monotonic()
    assert await rig.request(machine) == before + 1
    await rig.settle(machine, S.RUNNING)
    assert states(await rig.events())[-4:] == ["suspending", "paused", "resuming", "running"]


async def test_a_checkpoint_is_taken_and_the_machine_goes_on(rig: Rig) -> None:
    machine = await rig.machine()
    before = await rig.request(machine)
    await machine.checkpoint()
    report = await machine.report()
    assert (report.state, report.checkpoint) == (S.RUNNING, True)
    assert await rig.request(machine) == before + 1
    assert sessions(await rig.events()) == [("deploy", "checkpoint")]


async def test_a_checkpoint_forgets_what_the_start_read_and_a_sleep_what_it_may_need_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await rig.machine()
    dropped: list[bool] = []

    async def sync(timeout_s: float = 10.0, *, drop_caches: bool = False) -> None:
        dropped.append(drop_caches)

    monkeypatch.setattr(machine.guest, "sync", sync)
    await machine.checkpoint()
    await machine.sleep(SleepDepth.SUSPENDED)
    assert dropped == [True, False], "the caches are dropped where nobody waits, and never before a sleep"


async def test_a_machine_that_does_not_go_on_after_its_checkpoint_is_told_of_as_such(rig: Rig) -> None:
    machine = await rig.machine()
    rig.vmm.fail_resume = True
    rig.vmm.fail_boot = "no memory"
    with pytest.raises(CheckpointFailed, match="did not go on"):
        await machine.checkpoint()
    report = await machine.report()
    assert report.state is S.STOPPED
    assert report.failure is not None
    assert report.failure.code == "boot:host"


async def test_the_end_cause_of_an_idle_pause_is_idle(rig: Rig) -> None:
    machine = await rig.machine()
    await rig.clock.advance(61)
    await machine.pause_if_idle()
    ended = [e for e in await rig.events() if e.kind is EventKind.SESSION_ENDED]
    assert [e.end_cause for e in ended] == [EndCause.IDLE]
    assert ended[0].ended_at_ms == rig.clock.wall_ms()
