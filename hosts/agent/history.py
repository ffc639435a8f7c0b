"""A machine's record as it changes, and the events those changes owe to control.

A change is made in memory at once and made durable by `commit`. What could not be written stays owed and goes with
the next commit; every event has its id from birth, so writing it twice is harmless. Sessions live here too: they can
neither overlap nor end before they began, whatever the wall clock does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from hosts.agent.clock import Clock
from hosts.agent.durable import Scribe
from hosts.agent.journal import Journal, JournalError
from hosts.agent.record import MachineFiles, MachineRecord, OpenSession
from hosts.wire.events import Cause, EndCause, Event, EventKind
from hosts.wire.spec import MachineId
from hosts.wire.states import MachineEvent, MachineState, after
from hosts.wire.wakes import WakeTrace

log = structlog.get_logger(__name__)

MAX_OWED = 1000  # events kept in memory while the disk or a full journal refuses them; ends of sessions always are
# What is given up first: a state is told again by the next report, a session's start is repeated by its end.
GIVEN_UP_FIRST = (EventKind.STATE, EventKind.SESSION_STARTED)


class History:
    """The present record of one machine and what is still to be written of it."""

    def __init__(
        self,
        machine_id: MachineId,
        record: MachineRecord,
        *,
        files: MachineFiles,
        journal: Journal,
        scribe: Scribe,
        clock: Clock,
    ) -> None:
        self.record = record
        self._machine_id = machine_id
        self._files = files
        self._journal = journal
        self._scribe = scribe
        self._clock = clock
        self._owed: list[Event] = []
        self._saving = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def state(self) -> MachineState:
        """The present state."""
        return self.record.state

    def become(self, event: MachineEvent, *, code: str = "", detail: str = "", **changes: Any) -> None:
        """Make a legal move and change the record with it, or IllegalTransition and nothing is changed."""
        state = after(self.record.state, event)
        now_ms = self._clock.wall_ms()
        self.record = replace(self.record, state=state, since_ms=now_ms, **changes)
        self._owe(EventKind.STATE, now_ms, state=state, code=code, detail=detail)
        self._tell()

    def find(self, state: MachineState, **changes: Any) -> None:
        """After a restart: the machine was found in this state, whatever the record said."""
        if state is self.record.state:
            self.change(**changes)
            return
        now_ms = self._clock.wall_ms()
        self.record = replace(self.record, state=state, since_ms=now_ms, **changes)
        self._owe(EventKind.STATE, now_ms, state=state, code="host:restart")
        self._tell()

    def change(self, **changes: Any) -> None:
        """Change the record without a move."""
        self.record = replace(self.record, **changes)
        self._tell()

    def open_session(self, cause: Cause) -> None:
        """The vCPUs run as of now."""
        started_ms = max(self._clock.wall_ms(), self.record.session_ended_ms)
        session = OpenSession(self._clock.new_id(), started_ms, cause)
        self.record = replace(self.record, session=session)
        self._owe(
            EventKind.SESSION_STARTED, started_ms, session_id=session.session_id, started_at_ms=started_ms, cause=cause
        )

    def close_session(self, end_cause: EndCause, *, at_ms: int | None = None) -> None:
        """The vCPUs do not run any more as of now, or since `at_ms`. Nothing happens if no session is open."""
        session = self.record.session
        if session is None:
            return
        ended_ms = max(session.started_at_ms, self._clock.wall_ms() if at_ms is None else at_ms)
        self.record = replace(self.record, session=None, session_ended_ms=ended_ms)
        self._owe(
            EventKind.SESSION_ENDED,
            ended_ms,
            session_id=session.session_id,
            started_at_ms=session.started_at_ms,
            cause=session.cause,
            ended_at_ms=ended_ms,
            end_cause=end_cause,
        )

    def note_wake(self, trace: WakeTrace, cause: Cause) -> None:
        """A wake to tell of: owed like a state, but dated before the present one (hosts/wire/SPEC.md, section 2)."""
        self._owe(EventKind.STATE, self.record.since_ms - 1, state=self.record.state, cause=cause, wake=trace)

    async def commit(self) -> None:
        """Make everything so far durable. A disk that refuses is an alarm, not a failure: the rest stays owed.

        Ends of sessions first, then the record, then the rest: killed in between, the next agent finds in the record
        every session whose end it still owes, and never one that nobody knows how to end.
        """
        async with self._saving:
            owed, self._owed = self._owed, []
            ends = [e for e in owed if e.kind is EventKind.SESSION_ENDED]
            others = [e for e in owed if e.kind is not EventKind.SESSION_ENDED]
            try:
                ends = await self._append(ends)
                await self._save()
                others = await self._append(others)
            finally:
                self._owed = _bounded(ends + others + self._owed)

    async def wait_until(self, true: Callable[[], bool]) -> None:
        """Wait until a change makes `true` true."""
        while not true():
            await self._changed.wait()

    async def _save(self) -> None:
        try:
            await self._scribe.run(self._files.save, self.record)
        except OSError as e:
            self._alarm(e)

    async def _append(self, events: list[Event]) -> list[Event]:
        """What is still owed of them."""
        if events:
            try:
                await self._journal.append(*events)
            except (OSError, JournalError) as e:
                self._alarm(e)
                return events
        return []

    def _alarm(self, error: OSError | JournalError) -> None:
        log.error("machine.not_durable", machine=self._machine_id, error=str(error))

    def _owe(self, kind: EventKind, at_ms: int, **fields: Any) -> None:
        # seq 0: the journal numbers an event when it writes it
        self._owed.append(Event(self._clock.new_id(), 0, kind, self._machine_id, at_ms, **fields))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _bounded(events: list[Event]) -> list[Event]:
    """At most MAX_OWED, the oldest of the least worth given up; never a session's end, which is what is billed."""
    for kind in GIVEN_UP_FIRST:
        excess = len(events) - MAX_OWED
        if excess <= 0:
            break
        given_up = {e.event_id for e in [e for e in events if e.kind is kind][:excess]}
        events = [e for e in events if e.event_id not in given_up]
    return events
