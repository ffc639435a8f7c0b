"""The slow loops: a hung VMM or guest is found by asking, and life is stamped."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from hosts.agent.watch import MAX_MISSES, AliveStamp, Watchdog
from hosts.wire.commands import SleepDepth
from hosts.wire.states import MachineState
from tests.fakes.guest import FakeGuest
from tests.hosts.agent.rig import ID, Rig

S = MachineState


async def test_a_vmm_that_stays_silent_is_ended_and_the_next_request_gets_a_cold_boot(rig: Rig) -> None:
    machine = await rig.machine()
    dog = Watchdog(rig.fleet.all, rig.clock)
    rig.world.alive(ID)[0].silent = True
    for _ in range(MAX_MISSES - 1):
        await dog.round()
        assert machine.history.state is S.RUNNING
    await dog.round()
    assert machine.history.state is S.STOPPED
    assert rig.world.alive() == []
    await rig.request(machine)
    report = (await machine.report()).last_start
    assert report is not None
    assert report.reason == "it hung: QMP: no answer"


async def test_a_guest_that_does_not_answer_is_found_though_the_vmm_says_running(rig: Rig) -> None:
    machine = await rig.machine()
    dog = Watchdog(rig.fleet.all, rig.clock)
    answering = machine.guest
    machine.guest = FakeGuest(rig.world, _no_connection)
    for _ in range(MAX_MISSES):
        await dog.round()
    assert machine.history.state is S.STOPPED
    machine.guest = answering
    await rig.request(machine)


async def test_one_answer_in_between_counts_from_the_start_again(rig: Rig) -> None:
    machine = await rig.machine()
    dog = Watchdog(rig.fleet.all, rig.clock)
    process = rig.world.alive(ID)[0]
    for silent in (True, True, True, False, True, True, True):
        process.silent = silent
        await dog.round()
    assert machine.history.state is S.RUNNING


async def test_sleeping_machines_are_left_alone(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    dog = Watchdog(rig.fleet.all, rig.clock)
    for _ in range(MAX_MISSES + 1):
        await dog.round()
    assert machine.history.state is S.PAUSED


async def test_life_is_stamped_again_and_again(rig: Rig, tmp_path: Path) -> None:
    stamp = AliveStamp(tmp_path / "alive", rig.clock, rig.scribe)
    assert stamp.read_ms() == 0
    stamping = asyncio.get_running_loop().create_task(stamp.run())
    while stamp.read_ms() != rig.clock.wall_ms():
        await asyncio.sleep(0.001)
    while not rig.clock.sleeping:
        await asyncio.sleep(0.001)
    await rig.clock.advance(5)
    while stamp.read_ms() != rig.clock.wall_ms():
        await asyncio.sleep(0.001)
    stamping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stamping


async def test_a_stamp_that_is_none_reads_as_none(rig: Rig, tmp_path: Path) -> None:
    for junk in (b"", b"\xff", b"12x", b"-5"):
        (tmp_path / "alive").write_bytes(junk)
        assert AliveStamp(tmp_path / "alive", rig.clock, rig.scribe).read_ms() == 0


async def _no_connection(timeout_s: float) -> object:
    raise OSError("no answer")
