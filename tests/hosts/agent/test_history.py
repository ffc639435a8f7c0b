"""A record and its events: sessions that never overlap, and nothing lost to a disk that refuses."""

from __future__ import annotations

import itertools
import os

import pytest

from hosts.agent import history
from hosts.wire.commands import SleepDepth
from hosts.wire.events import EndCause, EventKind
from hosts.wire.states import IllegalTransition, MachineEvent, MachineState
from tests.hosts.agent.rig import Rig


async def test_sessions_neither_overlap_nor_end_before_they_began_when_the_wall_clock_jumps(rig: Rig) -> None:
    machine = await rig.machine()
    for jump_ms in (-3_600_000, 7_200_000, -10_000):
        rig.clock.step_wall(jump_ms)
        await machine.sleep(SleepDepth.PAUSED)
        await rig.request(machine)
    await machine.sleep(SleepDepth.PAUSED)
    spans = [
        (e.started_at_ms or 0, e.ended_at_ms or 0) for e in await rig.events() if e.kind is EventKind.SESSION_ENDED
    ]
    assert len(spans) == 4
    assert all(start <= end for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


async def test_an_illegal_move_changes_nothing(rig: Rig) -> None:
    machine = await rig.machine()
    before = machine.history.record
    with pytest.raises(IllegalTransition):
        machine.history.become(MachineEvent.SAVED)
    assert machine.history.record is before


async def test_what_the_disk_refused_is_owed_and_written_with_the_next_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await rig.machine()

    def no_space(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fdatasync", no_space)
        full.setattr(os, "fsync", no_space)
        await machine.sleep(SleepDepth.PAUSED)
        assert await rig.request(machine)
    await machine.sleep(SleepDepth.PAUSED)
    events = await rig.events()
    started = [e.session_id for e in events if e.kind is EventKind.SESSION_STARTED]
    ended = [e.session_id for e in events if e.kind is EventKind.SESSION_ENDED]
    assert len(started) == len(set(started)) == 2
    assert started == ended
    assert machine.files.load()[1] == machine.history.record


async def test_a_session_closed_in_the_past_ends_no_earlier_than_it_began(rig: Rig) -> None:
    machine = await rig.machine()
    machine.history.close_session(EndCause.CRASH, at_ms=0)
    machine.history.close_session(EndCause.CRASH, at_ms=0)
    await machine.history.commit()
    (ended,) = [e for e in await rig.events() if e.kind is EventKind.SESSION_ENDED]
    assert ended.started_at_ms == ended.ended_at_ms == machine.history.record.session_ended_ms


async def test_events_owed_while_the_disk_is_full_for_long_are_bounded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await rig.machine()
    monkeypatch.setattr(history, "MAX_OWED", 5)

    def no_space(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fdatasync", no_space)
        for _ in range(4):
            await machine.sleep(SleepDepth.PAUSED)
            await rig.request(machine)
            await rig.settle(machine, MachineState.RUNNING)
    count = len(await rig.events())
    await machine.history.commit()
    events = await rig.events()
    assert len(events) <= count + 5
    assert len([e for e in events if e.kind is EventKind.SESSION_ENDED]) == 4
