"""Host events become sessions exactly once, in whatever order and however often they come."""

from __future__ import annotations

import random
import uuid
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from control import clock
from control.billing import queries as billing
from control.billing import services as charging
from control.billing.models import Entry
from control.billing.rates import charge_micros
from control.machines.models import Machine
from control.machines.services import ensure_configured_host
from control.metering import services
from control.metering.models import HostEvent, Session
from hosts.wire.events import Cause, EndCause, Event, EventBatch, EventKind
from hosts.wire.spec import MachineId
from hosts.wire.states import MachineState
from tests.platform import rows

pytestmark = pytest.mark.django_db
BASE_MS = 1_700_000_000_000
RATE = 5


class Journal:
    """A host's journal for one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.id = uuid.uuid4().hex
        self.seq = 0

    def event(self, kind: EventKind, at_ms: int, **fields: object) -> Event:
        self.seq += 1
        return Event(
            event_id=uuid.uuid4().hex,
            seq=self.seq,
            kind=kind,
            machine_id=MachineId(self.machine.id.hex),
            at_ms=BASE_MS + at_ms,
            **fields,  # type: ignore[arg-type]  # the tests below give what the kind wants
        )

    def state(self, at_ms: int, state: MachineState) -> Event:
        return self.event(EventKind.STATE, at_ms, state=state)

    def start(self, session: str, at_ms: int) -> Event:
        return self.event(
            EventKind.SESSION_STARTED, at_ms, session_id=session, started_at_ms=BASE_MS + at_ms, cause=Cause.REQUEST
        )

    def end(self, session: str, start_ms: int, end_ms: int) -> Event:
        return self.event(
            EventKind.SESSION_ENDED,
            end_ms,
            session_id=session,
            started_at_ms=BASE_MS + start_ms,
            ended_at_ms=BASE_MS + end_ms,
            cause=Cause.REQUEST,
            end_cause=EndCause.IDLE,
        )

    def send(self, *events: Event) -> int:
        host = ensure_configured_host()
        return services.ingest(host=host, batch=EventBatch(host.name, self.id, events))


@pytest.fixture
def machine() -> Machine:
    return rows.machine(rows.app())


@pytest.fixture
def journal(machine: Machine) -> Journal:
    return Journal(machine)


def intervals(machine: Machine) -> list[tuple[int, int | None]]:
    return [
        (clock.to_ms(s.started_at) - BASE_MS, clock.to_ms(s.ended_at) - BASE_MS if s.ended_at else None)
        for s in Session.objects.filter(machine=machine).order_by("started_at")
    ]


def test_a_session_opens_and_closes_to_the_millisecond(machine: Machine, journal: Journal) -> None:
    assert journal.send(journal.start("a", 0)) == 1
    assert intervals(machine) == [(0, None)]
    journal.send(journal.end("a", 0, 12_345))
    assert intervals(machine) == [(0, 12_345)]
    session = Session.objects.get()
    assert (session.cause, session.end_cause) == ("request", "idle")


def test_the_same_batch_again_changes_nothing(machine: Machine, journal: Journal) -> None:
    batch = [journal.start("a", 0), journal.end("a", 0, 1000), journal.start("b", 2000)]
    journal.send(*batch)
    charging.charge_finished()
    journal.send(*batch)
    charging.charge_finished()
    assert intervals(machine) == [(0, 1000), (2000, None)]
    assert Entry.objects.count() == 1
    assert HostEvent.objects.count() == 3


@pytest.mark.parametrize("seed", range(25))
def test_any_order_and_any_repetition_end_in_the_same_bill(machine: Machine, journal: Journal, seed: int) -> None:
    chance = random.Random(seed)
    at, truth, events = 0, [], []
    for i in range(chance.randint(1, 6)):
        start = at + chance.randint(0, 5000)
        at = start + chance.choice([0, 1, 999, chance.randint(1, 100_000)])
        truth.append((start, at))
        session = f"{seed}-{i}"
        events += [journal.start(session, start), journal.end(session, start, at)]
    delivery = events + chance.choices(events, k=chance.randint(0, len(events)))
    chance.shuffle(delivery)
    while delivery:
        size = chance.randint(1, len(delivery))
        journal.send(*delivery[:size])
        charging.charge_finished()
        del delivery[:size]
    assert intervals(machine) == truth
    assert sum(e.amount_micros for e in Entry.objects.all()) == sum(charge_micros(b - a, RATE) for a, b in truth)
    assert sum(e.milliseconds for e in Entry.objects.all()) == sum(b - a for a, b in truth)
    assert not HostEvent.objects.exclude(problem="").exists()


def test_two_sessions_of_a_machine_cannot_overlap(machine: Machine, journal: Journal) -> None:
    journal.send(journal.end("a", 0, 1000))
    journal.send(journal.end("b", 500, 1500))
    assert intervals(machine) == [(0, 1000)]
    assert HostEvent.objects.get(seq=2).problem == "session:overlap"
    journal.send(journal.end("c", 1000, 1500))
    assert intervals(machine) == [(0, 1000), (1000, 1500)]


def test_the_database_itself_refuses_an_overlap(machine: Machine, journal: Journal) -> None:
    journal.send(journal.end("a", 0, 1000))
    known = Session.objects.get()
    twin = Session(
        id="twin",
        machine=machine,
        environment=machine.environment,
        size="small",
        started_at=known.started_at,
        during=DateTimeTZRange(known.started_at, None),
    )
    with pytest.raises(IntegrityError), transaction.atomic():
        twin.save()


def test_an_open_session_that_another_followed_waits_for_its_own_end(machine: Machine, journal: Journal) -> None:
    first, second = journal.start("a", 0), journal.end("a", 0, 900)
    journal.send(first, journal.start("b", 2000))
    assert intervals(machine) == [(0, None), (2000, None)]
    journal.send(second)
    assert intervals(machine) == [(0, 900), (2000, None)]


def test_events_of_an_unknown_machine_are_kept_and_acknowledged(journal: Journal) -> None:
    stray = journal.state(0, MachineState.RUNNING)
    Machine.objects.filter(id=journal.machine.id).delete()
    assert journal.send(stray) == 1
    assert HostEvent.objects.get().problem == "machine:unknown"


def test_the_state_follows_the_journal_and_never_goes_back(machine: Machine, journal: Journal) -> None:
    running, paused = journal.state(1000, MachineState.RUNNING), journal.state(2000, MachineState.PAUSED)
    Machine.objects.filter(id=machine.id).update(state_since=clock.from_ms(BASE_MS))
    journal.send(running, paused)
    machine.refresh_from_db()
    assert machine.state == "paused"
    journal.send(journal.state(1500, MachineState.RUNNING))
    journal.send(running)
    machine.refresh_from_db()
    assert machine.state == "paused"
    assert [t.new for t in machine.transitions.all()] == ["running", "paused"]


def test_a_session_nobody_will_end_is_ended_by_what_is_known(machine: Machine, journal: Journal) -> None:
    journal.send(journal.start("a", 0))
    long_ago = clock.from_ms(BASE_MS + 5000)
    Machine.objects.filter(id=machine.id).update(state="stopped", state_since=long_ago)
    assert services.close_orphans() == 1
    assert intervals(machine) == [(0, 5000)]
    assert Session.objects.get().end_cause == services.RECONCILED


def test_a_session_of_a_running_machine_stays_open(machine: Machine, journal: Journal) -> None:
    journal.send(journal.start("a", 0))
    Machine.objects.filter(id=machine.id).update(state="running", state_since=clock.from_ms(BASE_MS))
    assert services.close_orphans() == 0


def test_costs_to_date_count_what_still_runs(machine: Machine, journal: Journal) -> None:
    journal.send(journal.end("a", 0, 10_000))
    charging.charge_finished()
    app = machine.environment.app
    assert billing.totals(app).cost_micros == 10 * RATE
    start = clock.now() - timedelta(seconds=100)
    open_event = journal.event(
        EventKind.SESSION_STARTED,
        clock.to_ms(start) - BASE_MS,
        session_id="b",
        started_at_ms=clock.to_ms(start),
        cause=Cause.API,
    )
    journal.send(open_event)
    totals = billing.totals(app)
    assert 110 <= totals.seconds < 120
    assert 110 * RATE <= totals.cost_micros < 120 * RATE
    assert billing.costs([app])[app.id] == pytest.approx(totals.cost_micros, abs=RATE)
    newest, oldest = billing.sessions_of(app)
    assert (newest.ended_at, oldest.seconds, oldest.cost_micros) == (None, 10.0, 50)
