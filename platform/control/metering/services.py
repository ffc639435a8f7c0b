"""Takes in what hosts journaled, exactly once, and turns it into sessions.

Events may come twice, late or out of order. An event is stored by its id; only one that was not stored before is
looked at. A session's end carries all of it, so it stands alone; a start only opens what is not known yet. Postgres
refuses two sessions of a machine that overlap: such an event is kept with the reason and changes nothing, for a
machine is never billed twice for one moment. Wakes are told by events too, but are rows of their own (`wakes`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from control import clock, log
from control.machines import observe
from control.machines import queries as machines
from control.machines.models import Host, Machine
from control.metering import wakes
from control.metering.models import HostEvent, Session
from hosts.wire import codec
from hosts.wire.events import Event, EventBatch, EventKind
from hosts.wire.states import MachineState

logger = log.get(__name__)

BATCH_MAX = 500
ORPHAN_AFTER = timedelta(hours=1)  # a host ships within seconds; after that long it has lost its journal
NOT_RUNNING = tuple(s.value for s in MachineState if s not in (MachineState.RUNNING, MachineState.RESUMING))
RECONCILED = "reconciled"


def ingest(*, host: Host, batch: EventBatch) -> int:
    """Store a batch and take it over; the last seq stored. All of it or, when something breaks, none of it."""
    with transaction.atomic():
        for event in batch.events:
            _take(host, batch.journal_id, event)
    return batch.events[-1].seq if batch.events else 0


def _take(host: Host, journal_id: str, event: Event) -> None:
    if event.wake is not None:
        machine = machines.machine(str(event.machine_id))
        if machine is not None and machine.host_id == host.id:
            wakes.take_wake(machine, event, event.wake)
        return
    row = HostEvent(
        event_id=event.event_id,
        host=host,
        journal_id=journal_id,
        seq=event.seq,
        kind=event.kind.value,
        machine_id=str(event.machine_id),
        at=clock.from_ms(event.at_ms),
        body=codec.to_json(event),
    )
    # ON CONFLICT DO NOTHING also waits for another transaction that is just storing the same event.
    HostEvent.objects.bulk_create([row], ignore_conflicts=True)
    stored = HostEvent.objects.select_for_update().get(event_id=event.event_id)
    if stored.taken:
        return
    problem = _apply(host, journal_id, event)
    if problem:
        logger.warning("host event changed nothing", event_id=event.event_id, kind=event.kind.value, problem=problem)
    HostEvent.objects.filter(id=stored.id).update(taken=True, problem=problem)


def _apply(host: Host, journal_id: str, event: Event) -> str:
    machine = machines.machine(str(event.machine_id))
    if machine is None or machine.host_id != host.id:
        return "machine:unknown"
    if event.kind is EventKind.STATE:
        return "" if observe.take_event(machine, event, journal_id) else "event:old"
    if not event.session_id or event.started_at_ms is None:
        return "session:incomplete"
    if event.kind is EventKind.SESSION_STARTED:
        return _start(machine, event, clock.from_ms(event.started_at_ms))
    if event.ended_at_ms is None or event.ended_at_ms < event.started_at_ms:
        return "session:incomplete"
    return _end(machine, event, clock.from_ms(event.started_at_ms), clock.from_ms(event.ended_at_ms))


def _start(machine: Machine, event: Event, start: datetime) -> str:
    if Session.objects.filter(id=event.session_id).exists():
        return ""  # its end came first
    _trim_open(machine, start, but=event.session_id)
    following = (
        Session.objects.filter(machine=machine, started_at__gt=start).order_by("started_at").values_list("started_at")
    ).first()
    return _store(
        Session(
            id=event.session_id,
            machine=machine,
            environment_id=machine.environment_id,
            size=machine.size,
            during=DateTimeTZRange(start, following[0] if following else None),
            started_at=start,
            cause=event.cause.value if event.cause else "",
        )
    )


def _end(machine: Machine, event: Event, start: datetime, end: datetime) -> str:
    known = Session.objects.select_for_update().filter(id=event.session_id).first()
    if known is not None and (known.ended_at is not None or known.machine_id != machine.id):
        return "" if known.machine_id == machine.id else "session:foreign"
    _trim_open(machine, start, but=event.session_id)
    session = known or Session(
        id=event.session_id, machine=machine, environment_id=machine.environment_id, size=machine.size
    )
    session.started_at, session.ended_at = start, end
    session.during = DateTimeTZRange(start, end)
    session.cause = event.cause.value if event.cause else session.cause
    session.end_cause = event.end_cause.value if event.end_cause else ""
    return _store(session)


def _trim_open(machine: Machine, start: datetime, *, but: str) -> None:
    """A session that is open and began earlier cannot reach past `start`. It is billed when its own end comes."""
    for session in Session.objects.filter(machine=machine, ended_at=None, started_at__lt=start).exclude(id=but):
        upper = session.during.upper
        if upper is None or upper > start:
            session.during = DateTimeTZRange(session.started_at, start)
            session.save(update_fields=["during"])


def _store(session: Session) -> str:
    try:
        with transaction.atomic():
            session.save()
    except IntegrityError:
        return "session:overlap"
    return ""


def close_orphans() -> int:
    """End sessions whose end will never be reported: the machine has long been at rest and its host's journal is past
    it.

    They end when the machine was last known to change, which is never later than it really stopped being known to
    run.
    """
    now = clock.now()
    closed = 0
    rows = Session.objects.select_related("machine").filter(
        ended_at=None, machine__state__in=NOT_RUNNING, machine__state_since__lt=now - ORPHAN_AFTER
    )
    for session in rows:
        upper = session.during.upper
        end = max(session.started_at, min(session.machine.state_since, upper or now))
        with transaction.atomic():
            changed = Session.objects.filter(id=session.id, ended_at=None).update(
                ended_at=end, during=DateTimeTZRange(session.started_at, end), end_cause=RECONCILED
            )
        closed += changed
        logger.warning("session ended without its host's word", session=session.id)
    return closed
