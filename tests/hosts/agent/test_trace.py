"""A wake is told once: by whom, how it went and when the app answered. Nobody waits for the telling."""

from __future__ import annotations

import asyncio

import pytest

from hosts.agent import streams, trace
from hosts.agent.machine import Machine
from hosts.agent.starts import StartFailed
from hosts.wire.commands import SleepDepth, Start
from hosts.wire.events import Cause, Event, EventKind
from hosts.wire.states import MachineState
from hosts.wire.wakes import WakeTrace
from tests.fakes.world import App
from tests.hosts.agent.rig import ID, SETTLE_S, Rig, spec
from tunnel.wire import CAUSED, WAITED, Refused


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "WRITE_AFTER_S", 0.0)


async def wake_events(rig: Rig, count: int = 1) -> list[Event]:
    """The journaled wakes, once there are so many."""
    async with asyncio.timeout(SETTLE_S):
        while True:
            found = [e for e in await rig.events() if e.wake is not None]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)


async def wakes(rig: Rig, count: int = 1) -> list[WakeTrace]:
    return [event.wake for event in await wake_events(rig, count) if event.wake is not None]


async def open_stream(rig: Rig, request: str) -> trace.Wake | None:
    """What is to be told of the first byte, if this stream's request caused the wake."""
    target = await rig.streams.open_machine(ID, may_wake=True, request=request)
    target.sock.close()
    assert target.watcher is None or isinstance(target.watcher, trace.Wake)
    return target.watcher


def told_how(machine: Machine) -> tuple[str, ...]:
    report = machine.history.record.last_start
    assert report is not None
    return tuple(step.name for step in report.steps)


@pytest.mark.parametrize("depth", SleepDepth)
async def test_a_wake_is_told_with_its_request_its_steps_and_the_first_byte(rig: Rig, depth: SleepDepth) -> None:
    machine = await rig.machine()
    await machine.sleep(depth)
    asked_ms = rig.clock.wall_ms()
    watcher = await open_stream(rig, "e1-42")
    assert watcher is not None
    await rig.clock.advance(0.25)
    watcher.app_spoke()
    (event,) = await wake_events(rig)
    assert event.wake is not None
    assert event.cause is Cause.REQUEST
    assert (event.wake.request, event.wake.waited, event.wake.kept) == ("e1-42", 1, False)
    assert (event.wake.start, event.wake.reason, event.wake.code) == (Start.RESUME, "", "")
    assert event.wake.at_ms == asked_ms
    assert event.wake.first_byte_ms == 250.0
    assert tuple(step.name for step in event.wake.steps) == told_how(machine) != ()


async def test_those_who_wait_for_one_wake_are_one_trace(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    watchers = await asyncio.gather(*(open_stream(rig, f"r{n}") for n in range(3)))
    (watcher,) = [w for w in watchers if w is not None]
    watcher.app_spoke()
    watcher.app_spoke()
    watcher.stream_ended()
    (told,) = await wakes(rig)
    assert (told.request, told.waited) == ("r0", 3)
    await asyncio.sleep(0.05)
    assert len(await wakes(rig)) == 1


async def test_the_edge_is_told_who_woke_the_machine_and_who_waited(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    opens = (rig.streams.open_machine(ID, may_wake=True, request=f"r{n}") for n in range(2))
    targets = [*await asyncio.gather(*opens), await rig.streams.open_machine(ID, may_wake=True, request="late")]
    assert [target.opened.wake for target in targets] == [CAUSED, WAITED, ""]
    for target in targets:
        target.sock.close()


async def test_a_stream_that_ends_without_an_answer_does_not_lose_the_trace(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    watcher = await open_stream(rig, "r")
    assert watcher is not None
    watcher.stream_ended()
    (told,) = await wakes(rig)
    assert (told.request, told.first_byte_ms) == ("r", None)


async def test_an_app_that_says_nothing_does_not_lose_the_trace(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "FIRST_BYTE_WAIT_S", 0.0)
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    await open_stream(rig, "r")
    (told,) = await wakes(rig)
    assert told.first_byte_ms is None


async def test_an_agent_that_ends_tells_what_it_knows(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "WRITE_AFTER_S", 60.0)
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    await open_stream(rig, "r")
    await machine.let_go()
    assert [told.request for told in await wakes(rig)] == ["r"]


async def test_bytes_on_a_stream_that_was_open_name_the_request_that_opened_it(rig: Rig) -> None:
    machine = await rig.machine()
    target = await rig.streams.open_machine(ID, may_wake=True, request="ws")
    assert target.watcher is None  # it ran already
    await machine.sleep(SleepDepth.PAUSED)
    watcher = await target.gate.wait()
    assert watcher is not None
    watcher.app_spoke()
    (told,) = await wakes(rig)
    assert (told.request, told.kept) == ("ws", True)
    target.sock.close()


async def test_memory_that_was_given_up_is_told_with_the_cold_boot_it_led_to(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    machine.snapshot.manifest.write_bytes(b"not a manifest")
    watcher = await open_stream(rig, "r")
    assert watcher is not None
    watcher.app_spoke()
    (told,) = await wakes(rig)
    assert told.start is Start.COLD_BOOT
    assert "refused" in told.reason
    names = [step.name for step in told.steps]
    assert names.index("load") < names.index("kernel")


async def test_a_wake_that_fails_is_told_with_its_code_and_phase(rig: Rig) -> None:
    machine = await rig.machine()
    rig.world.alive(ID)[0].end()
    await rig.settle(machine, MachineState.STOPPED)
    rig.world.apps[ID] = App(listens=False)
    with pytest.raises(Refused):
        await open_stream(rig, "r")
    (told,) = await wakes(rig)
    assert (told.request, told.code, told.phase) == ("r", "check:not_listening", "listening")
    assert told.start is Start.COLD_BOOT
    assert told.first_byte_ms is None


async def test_an_app_that_does_not_take_its_stream_does_not_lose_the_trace(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONNECT_DEADLINE_S", 0.0)
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    rig.world.apps[ID].port = 1
    rig.world.apps[ID].listens = False
    with pytest.raises(Refused):
        await open_stream(rig, "r")
    (told,) = await wakes(rig)
    assert (told.code, told.first_byte_ms) == ("", None)


async def test_a_wake_by_the_api_has_no_request(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    await machine.wake(Cause.API, deadline_s=SETTLE_S)
    (event,) = await wake_events(rig)
    assert event.cause is Cause.API
    assert event.wake is not None
    assert (event.wake.request, event.wake.waited) == ("", 0)


async def test_the_first_boot_of_a_release_is_no_wake_whoever_waits_for_it(rig: Rig) -> None:
    rig.world.apps[ID] = App()
    await rig.fleet.create(spec())
    assert await open_stream(rig, "r") is None
    await asyncio.sleep(0.05)
    assert [e for e in await rig.events() if e.wake is not None] == []


async def test_a_wake_that_cannot_begin_is_told_too(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    machine.resume_not_before = rig.clock.monotonic() + 3600
    with pytest.raises(StartFailed):
        await machine.wake(Cause.REQUEST, deadline_s=SETTLE_S, asked=trace.Asked(rig.clock, "r"))
    (told,) = await wakes(rig)
    assert (told.start, told.code, told.steps) == (None, "resume:host", ())


async def test_the_trace_of_a_machine_that_is_gone_is_not_written(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    watcher = await open_stream(rig, "r")
    assert watcher is not None
    await machine.destroy()
    watcher.app_spoke()
    await asyncio.sleep(0.05)
    assert [e for e in await rig.events() if e.wake is not None] == []
    assert not machine.files.folder.exists()


async def test_an_agent_or_control_that_knows_no_wakes_takes_one_for_old_news(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    watcher = await open_stream(rig, "r")
    assert watcher is not None
    watcher.app_spoke()
    (wake,) = await wake_events(rig)
    before = [e for e in await rig.events() if e.kind is EventKind.STATE and e.wake is None and e.seq < wake.seq]
    assert wake.kind is EventKind.STATE
    assert wake.state is before[-1].state is MachineState.RUNNING
    assert wake.at_ms == before[-1].at_ms - 1


async def test_the_bytes_do_not_wait_for_the_trace(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "WRITE_AFTER_S", 60.0)
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    await rig.request(machine)
    assert [e for e in await rig.events() if e.wake is not None] == []
    await machine.let_go()
    assert len(await wakes(rig)) == 1
