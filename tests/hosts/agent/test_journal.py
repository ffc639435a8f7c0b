"""The journal: what it promised is there after any crash, in order, until control has it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.agent import journal as journal_module
from hosts.agent.durable import Scribe
from hosts.agent.journal import Journal, JournalError, open_journal
from hosts.wire.events import Event, EventKind
from hosts.wire.spec import MachineId
from hosts.wire.wakes import WakeTrace
from tests.fakes.clock import FakeClock

MACHINE = MachineId("0" * 32)


def event(n: int, kind: EventKind = EventKind.STATE) -> Event:
    return Event(f"{n:032x}", 0, kind, MACHINE, 1000 + n)


@pytest.fixture
async def scribe() -> AsyncIterator[Scribe]:
    scribe = Scribe()
    yield scribe
    scribe.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def test_events_are_numbered_in_the_order_of_their_appends(path: Path, scribe: Scribe) -> None:
    journal = Journal(path, scribe, new_journal_id="j1")
    await asyncio.gather(*(journal.append(event(n)) for n in range(20)))
    batch = await journal.batch()
    assert [(e.seq, e.at_ms) for e in batch] == [(n + 1, 1000 + n) for n in range(20)]
    await journal.close()


async def test_what_was_appended_is_there_after_a_restart(path: Path, scribe: Scribe) -> None:
    first = Journal(path, scribe, new_journal_id="j1")
    await first.append(event(1), event(2))
    await first.close()
    second = Journal(path, scribe, new_journal_id="j2")
    assert second.journal_id == "j1"
    assert [e.event_id for e in await second.batch()] == [event(1).event_id, event(2).event_id]
    assert second.next_seq == 3
    assert second.grew.is_set()
    await second.close()


@pytest.mark.parametrize("cut", [1, 5, 30])
async def test_a_torn_tail_is_cut_off_and_the_number_given_anew(path: Path, scribe: Scribe, cut: int) -> None:
    first = Journal(path, scribe, new_journal_id="j1")
    await first.append(event(1))
    await first.append(event(2))
    await first.close()
    os.truncate(path, path.stat().st_size - cut)
    second = Journal(path, scribe, new_journal_id="j2")
    assert [e.seq for e in await second.batch()] == [1]
    await second.append(event(3))
    assert [(e.seq, e.at_ms) for e in await second.batch()] == [(1, 1001), (2, 1003)]
    await second.close()


async def test_damage_in_the_middle_is_refused_not_skipped(path: Path, scribe: Scribe) -> None:
    first = Journal(path, scribe, new_journal_id="j1")
    await first.append(event(1), event(2), event(3))
    await first.close()
    data = bytearray(path.read_bytes())
    data[data.index(b"1002")] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match="damaged at byte"):
        Journal(path, scribe, new_journal_id="j2")


@pytest.mark.parametrize(
    "header", [b"", b"{}\n", b'{"journal": 2, "journal_id": "x", "base_seq": 1}\n', b"[1]\n", b"no json\n"]
)
async def test_a_file_that_is_no_journal_is_refused(path: Path, scribe: Scribe, header: bytes) -> None:
    path.write_bytes(header)
    with pytest.raises(JournalError, match="not a journal"):
        Journal(path, scribe, new_journal_id="j1")


async def test_acknowledged_events_are_not_shipped_again(path: Path, scribe: Scribe) -> None:
    journal = Journal(path, scribe, new_journal_id="j1")
    await journal.append(*(event(n) for n in range(1, 6)))
    await journal.acknowledge(3)
    assert [e.seq for e in await journal.batch()] == [4, 5]
    assert journal.unshipped == 2
    await journal.acknowledge(2)  # an old answer that came late
    await journal.acknowledge(99)  # a number never given out
    assert [e.seq for e in await journal.batch(limit=1)] == [4]
    await journal.acknowledge(5)
    assert await journal.batch() == ()
    assert not journal.grew.is_set()
    await journal.close()


async def test_the_acknowledged_head_is_dropped_and_numbers_go_on(
    path: Path, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 1)
    journal = Journal(path, scribe, new_journal_id="j1")
    await journal.append(*(event(n) for n in range(1, 101)))
    full = path.stat().st_size
    await journal.acknowledge(98)
    assert path.stat().st_size < full / 10
    assert [e.seq for e in await journal.batch()] == [99, 100]
    await journal.append(event(101))
    await journal.close()
    again = Journal(path, scribe, new_journal_id="j2")
    assert [(e.seq, e.at_ms) for e in await again.batch()] == [(99, 1099), (100, 1100), (101, 1101)]
    await again.acknowledge(101)
    await again.close()
    third = Journal(path, scribe, new_journal_id="j3")
    assert third.next_seq == 102
    await third.close()


async def test_a_disk_that_refuses_fails_the_append_and_leaves_no_trace(
    path: Path, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path, scribe, new_journal_id="j1")
    await journal.append(event(1))
    size = path.stat().st_size

    def no_space(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", no_space)
        with pytest.raises(JournalError, match="No space left"):
            await journal.append(event(2))
    assert path.stat().st_size == size
    await journal.append(event(3))
    assert [(e.seq, e.at_ms) for e in await journal.batch()] == [(1, 1001), (2, 1003)]
    await journal.close()


async def test_a_journal_control_never_empties_takes_no_new_session_and_no_wake_but_every_end(
    path: Path, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_BYTES", 10)
    journal = Journal(path, scribe, new_journal_id="j1")
    with pytest.raises(JournalError, match="control has not taken"):
        await journal.append(event(1, EventKind.SESSION_STARTED))
    with pytest.raises(JournalError, match="control has not taken"):
        await journal.append(replace(event(1, EventKind.STATE), wake=WakeTrace(at_ms=1)))
    await journal.append(event(2, EventKind.SESSION_ENDED))
    assert journal.unshipped == 1
    await journal.close()


async def test_appends_made_while_the_disk_is_busy_share_one_fsync(
    path: Path, scribe: Scribe, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = 0
    real = os.fdatasync

    def count(fd: int) -> None:
        nonlocal synced
        synced += 1
        real(fd)

    monkeypatch.setattr(os, "fdatasync", count)
    journal = Journal(path, scribe, new_journal_id="j1")
    await asyncio.gather(*(journal.append(event(n)) for n in range(50)))
    assert synced <= 3
    await journal.close()


async def test_an_agent_that_starts_on_a_damaged_journal_sets_it_aside_and_keeps_what_is_whole(
    path: Path, scribe: Scribe
) -> None:
    clock = FakeClock()
    first = await open_journal(path, scribe, clock)
    await first.append(event(1), event(2), event(3))
    await first.close()
    data = bytearray(path.read_bytes())
    data[data.index(b"1002")] ^= 1
    path.write_bytes(data)
    second = await open_journal(path, scribe, clock)
    assert second.journal_id != first.journal_id
    assert [(e.seq, e.event_id) for e in await second.batch()] == [(1, event(1).event_id), (2, event(3).event_id)]
    assert len(list(path.parent.glob("journal.damaged-*"))) == 1
    await second.close()
