"""Takes over what hosts say a machine does: their events (journal order) and their answers (the present).

Two sources may cross on the way, so each has its rule. An event counts only if its journal has not been read further
already and it is not older than what is known. An answer counts if nothing newer was taken over since the question
was asked. Whatever a rule drops by mistake, the next reconcile puts right.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control import clock
from control.machines.models import Machine, MachineTransition
from control.machines.states import Lifecycle
from hosts.wire import codec
from hosts.wire.commands import MachineReport
from hosts.wire.events import Event
from hosts.wire.states import MachineState

CAS_TRIES = 5
DETAIL_CHARS = 4000


def take_report(machine: Machine, report: MachineReport, *, source: str = "report") -> Machine:
    """Take over a host's answer; `machine` is the row as it was before the host was asked.

    Returns the row as it is now.
    """
    since = clock.from_ms(report.since_ms)
    code, detail = (report.failure.code, report.failure.message) if report.failure else ("", "")
    for _ in range(CAS_TRIES):
        row = Machine.objects.get(id=machine.id)
        fresh = row.version == machine.version or since >= row.state_since
        if not fresh or row.lifecycle == Lifecycle.GONE:
            return row
        body = codec.to_json(report)
        if _move(row, report.state.value, since, code, detail, source, report=body):
            return Machine.objects.get(id=machine.id)
    return Machine.objects.get(id=machine.id)


def take_event(machine: Machine, event: Event, journal_id: str) -> bool:
    """Take over a STATE event. False if it changed nothing, being old news."""
    if event.state is None:
        return False
    at = clock.from_ms(event.at_ms)
    for _ in range(CAS_TRIES):
        row = Machine.objects.get(id=machine.id)
        known = row.journal_id == journal_id and event.seq <= row.journal_seq
        if known or row.state == MachineState.DESTROYED:
            return False
        journal = {"journal_id": journal_id, "journal_seq": event.seq}
        if at < row.state_since:
            if Machine.objects.filter(id=row.id, version=row.version).update(version=row.version + 1, **journal):
                return False
            continue
        if _move(row, event.state.value, at, event.code, event.detail, "event", **journal):
            return True
    return False


def take_lost(machine: Machine, state: str, detail: str) -> None:
    """Control's own conclusion: the host does not have this machine (any more)."""
    row = Machine.objects.get(id=machine.id)
    if row.version == machine.version:
        _move(row, state, clock.now(), "machine:lost", detail, "control")


def _move(row: Machine, state: str, since: datetime, code: str, detail: str, source: str, **fields: object) -> bool:
    with transaction.atomic():
        changed = Machine.objects.filter(id=row.id, version=row.version).update(
            state=state,
            state_since=since,
            code=code,
            detail=detail[:DETAIL_CHARS],
            version=row.version + 1,
            **fields,
        )
        if changed and state != row.state:
            MachineTransition.objects.create(
                machine=row, old=row.state, new=state, source=source, code=code, detail=detail[:DETAIL_CHARS], at=since
            )
    return bool(changed)
