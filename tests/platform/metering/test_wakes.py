"""What hosts tell of wakes is stored once, shown newest first and forgotten in time; it never touches anything else."""

from __future__ import annotations

import math
import uuid
from datetime import timedelta

import pytest

from control import clock
from control.machines.models import Machine
from control.machines.services import ensure_configured_host
from control.metering import services, tasks, wakes
from control.metering.models import HostEvent, Wake
from hosts.wire import codec
from hosts.wire.events import Cause, Event, EventBatch, EventKind
from hosts.wire.spec import MachineId
from hosts.wire.states import MachineState
from hosts.wire.wakes import Start, Step, WakeTrace
from tests.platform import rows

pytestmark = pytest.mark.django_db
BASE_MS = 1_700_000_000_000


@pytest.fixture
def machine() -> Machine:
    return rows.machine(rows.app())


def wake(machine: Machine, *, at_ms: int = 0, seq: int = 1, **fields: object) -> Event:
    trace = WakeTrace(at_ms=BASE_MS + at_ms, request="e-1", waited=1, start=Start.RESUME, ready_ms=300.0)
    return Event(
        event_id=uuid.uuid4().hex,
        seq=seq,
        kind=EventKind.STATE,
        machine_id=MachineId(machine.id.hex),
        at_ms=BASE_MS + at_ms,
        state=MachineState.RUNNING,
        cause=Cause.REQUEST,
        wake=codec.from_json(WakeTrace, {**codec.to_json(trace), **fields}),  # type: ignore[dict-item]
    )


def send(*events: Event) -> int:
    host = ensure_configured_host()
    return services.ingest(host=host, batch=EventBatch(host.name, "j" * 32, events))


def test_a_wake_is_stored_with_all_it_tells(machine: Machine) -> None:
    event = wake(
        machine,
        kept=True,
        reason="the snapshot was refused",
        queue_ms=1.5,
        first_byte_ms=512.25,
        steps=[{"name": "load", "ms": 100.5}],
    )
    assert send(event) == 1
    (view,) = wakes.wakes_of(machine.environment.app)
    assert view == wakes.WakeView(
        id=event.event_id,
        asked_at=clock.from_ms(BASE_MS),
        cause="request",
        request="e-1",
        kept=True,
        waited=1,
        start="resume",
        reason="the snapshot was refused",
        queue_ms=1.5,
        ready_ms=300.0,
        first_byte_ms=512.25,
        code="",
        phase="",
        steps=(Step("load", 100.5),),
    )


def test_a_wake_that_comes_twice_is_one(machine: Machine) -> None:
    event = wake(machine)
    send(event)
    send(event, event)
    assert Wake.objects.count() == 1


def test_a_wake_moves_no_machine_and_is_no_host_event(machine: Machine) -> None:
    before = Machine.objects.get(id=machine.id)
    send(wake(machine))
    after = Machine.objects.get(id=machine.id)
    assert (after.state, after.version, after.journal_seq) == (before.state, before.version, before.journal_seq)
    assert HostEvent.objects.count() == 0


def test_a_control_that_knows_no_wakes_takes_one_for_old_news(machine: Machine) -> None:
    running = Event(
        uuid.uuid4().hex, 1, EventKind.STATE, MachineId(machine.id.hex), BASE_MS + 5, state=MachineState.RUNNING
    )
    told = codec.to_json(wake(machine, at_ms=4, seq=2))
    assert isinstance(told, dict)
    del told["wake"]
    send(running)
    before = Machine.objects.get(id=machine.id)
    assert send(codec.from_json(Event, {**told, "state": "running"})) == 2
    after = Machine.objects.get(id=machine.id)
    assert (after.state, after.state_since, after.code) == (before.state, before.state_since, before.code)


def test_wakes_of_a_machine_that_is_not_this_hosts_are_not_stored(machine: Machine) -> None:
    other = Machine(id=uuid.uuid4())
    send(wake(other))
    assert Wake.objects.count() == 0


def test_what_a_host_says_is_bounded(machine: Machine) -> None:
    send(
        wake(
            machine,
            request="x" * 5000,
            reason="a\0b" + "\ud800" + "y" * 5000,
            waited=10**12,
            queue_ms=-1.0,
            ready_ms=math.inf,
            first_byte_ms=math.nan,
            steps=[{"name": "s" * 500, "ms": 1.0}] * 500,
        )
    )
    (view,) = wakes.wakes_of(machine.environment.app)
    assert len(view.request) == 64
    assert view.reason.startswith("ab?y")
    assert len(view.reason) == wakes.TEXT_CHARS
    assert (view.waited, view.queue_ms, view.ready_ms, view.first_byte_ms) == (wakes.COUNT_MAX, 0.0, 0.0, 0.0)
    assert len(view.steps) == wakes.STEPS_MAX


def test_they_come_newest_first_and_no_more_than_asked_for(machine: Machine) -> None:
    send(*(wake(machine, at_ms=n * 1000, seq=n + 1) for n in (2, 0, 1)))
    send(wake(rows.machine(rows.app()), at_ms=9000, seq=9))  # somebody else's
    app = machine.environment.app
    assert [clock.to_ms(w.asked_at) - BASE_MS for w in wakes.wakes_of(app)] == [2000, 1000, 0]
    assert len(wakes.wakes_of(app, limit=2)) == 2
    earlier = wakes.wakes_of(app, before=clock.from_ms(BASE_MS + 2000))
    assert [clock.to_ms(w.asked_at) - BASE_MS for w in earlier] == [1000, 0]


def test_old_wakes_are_forgotten_and_so_are_too_many(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakes, "KEPT_EACH", 2)
    send(*(wake(machine, at_ms=n * 1000, seq=n + 1) for n in range(4)))
    other = rows.machine(rows.app())
    send(wake(other, seq=1), wake(other, at_ms=1, seq=2))
    Wake.objects.filter(machine=other, asked_at=clock.from_ms(BASE_MS)).update(
        received_at=clock.now() - wakes.KEPT - timedelta(seconds=1)
    )
    tasks.forget_wakes()
    left = [clock.to_ms(w.asked_at) - BASE_MS for w in wakes.wakes_of(machine.environment.app)]
    assert left == [3000, 2000]
    assert len(wakes.wakes_of(other.environment.app)) == 1
    assert wakes.forget_wakes() == 0
