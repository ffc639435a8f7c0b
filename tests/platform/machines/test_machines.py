"""Machines: what their host says is taken over, what control wants is carried out, what nobody wants is removed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DataError

from control import clock
from control.applications import services as apps
from control.errors import UserError
from control.machines import observe, placement, services, tasks
from control.machines.models import Host, Machine
from control.machines.states import Lifecycle
from hosts.wire.commands import ErrorBody, MachineReport, SleepDepth
from hosts.wire.spec import Egress, MachineId
from hosts.wire.states import MachineState
from tests.platform import rows
from tests.platform.fakehost import FakeEdge, FakeHost

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine(edge: FakeEdge) -> Machine:
    """A machine that runs on the host."""
    machine = rows.machine(rows.app())
    services.start(machine=machine)
    services.look(machine=machine)
    machine.refresh_from_db()
    return machine


def report(machine: Machine, state: MachineState, *, at_ms: int) -> MachineReport:
    return MachineReport(MachineId(machine.id.hex), state, at_ms, 1)


def test_starting_twice_makes_one_machine(machine: Machine, host: FakeHost) -> None:
    services.start(machine=machine)
    assert len(host.machines) == 1
    assert machine.state == "running"


def test_sleep_waits_for_the_host_and_says_the_state(machine: Machine) -> None:
    assert services.sleep(machine=machine, to=SleepDepth.SUSPENDED) == "suspended"
    machine.refresh_from_db()
    assert machine.state == "suspended"
    assert services.wake(machine=machine) == "running"


def test_sleep_asks_again_while_the_last_request_is_just_ending(machine: Machine, host: FakeHost) -> None:
    host.machines[machine.id.hex].in_flight = 1

    def end_at_the_second_time(verb: str) -> None:
        if host.counts["POST machines/sleep"] == 2:
            host.machines[machine.id.hex].in_flight = 0

    host.before = end_at_the_second_time
    assert services.sleep(machine=machine, to=SleepDepth.PAUSED) == "paused"


def test_a_busy_machine_is_not_put_to_sleep(machine: Machine, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "SLEEP_BUSY_WAIT_S", 0)
    host.machines[machine.id.hex].in_flight = 1
    with pytest.raises(UserError) as refused:
        services.sleep(machine=machine, to=SleepDepth.PAUSED)
    assert refused.value.code == "machine:busy"


def test_an_unreachable_host_is_said_to_be_so(machine: Machine, edge: FakeEdge) -> None:
    edge.linked = False
    with pytest.raises(UserError) as refused:
        services.wake(machine=machine)
    assert refused.value.code == "host:unreachable"


def test_an_old_answer_does_not_undo_a_newer_one(machine: Machine) -> None:
    asked_before = Machine.objects.get(id=machine.id)
    now = clock.to_ms(clock.now())
    observe.take_report(machine, report(machine, MachineState.PAUSED, at_ms=now + 10))
    observe.take_report(asked_before, report(machine, MachineState.RUNNING, at_ms=now - 10_000))
    machine.refresh_from_db()
    assert machine.state == "paused"


def test_each_change_of_state_is_a_row(machine: Machine) -> None:
    services.sleep(machine=machine, to=SleepDepth.PAUSED)
    services.sleep(machine=machine, to=SleepDepth.PAUSED)
    assert [t.new for t in machine.transitions.all()] == ["booting", "running", "paused"]


def test_a_retired_machine_goes_once_drained(machine: Machine, host: FakeHost) -> None:
    assert services.retire(machine=machine, drain_s=0)
    assert not services.retire(machine=machine, drain_s=0)
    host.machines[machine.id.hex].in_flight = 1
    tasks.sweep()
    assert host.machines
    past = clock.now() - timedelta(seconds=services.DRAIN_MAX_S + 1)
    Machine.objects.filter(id=machine.id).update(drain_until=past)
    tasks.sweep()
    assert not host.machines
    tasks.sweep()
    machine.refresh_from_db()
    assert machine.lifecycle == Lifecycle.GONE
    assert host.counts["DELETE machines"] == 1


def test_a_machine_its_host_does_not_know_any_more_is_retired_all_the_same(machine: Machine, host: FakeHost) -> None:
    host.machines.clear()
    services.retire(machine=machine, drain_s=0)
    tasks.remove(machine.id.hex)
    machine.refresh_from_db()
    assert machine.lifecycle == Lifecycle.GONE


def test_reconcile_takes_over_what_the_host_says(machine: Machine, host: FakeHost) -> None:
    host.set_state(machine.id.hex, MachineState.PAUSED)
    tasks.reconcile()
    machine.refresh_from_db()
    assert machine.state == "paused"
    assert Host.objects.get().seen_at is not None


def test_reconcile_removes_what_nobody_wants(machine: Machine, host: FakeHost) -> None:
    stray = host.machines[machine.id.hex]
    host.machines["f" * 32] = stray
    Machine.objects.filter(id=machine.id).update(lifecycle=Lifecycle.GONE.value)
    stray.spec = stray.spec.__class__(
        MachineId("f" * 32), stray.spec.app, 1, stray.spec.image, stray.spec.process, stray.spec.size
    )
    tasks.reconcile()
    assert "f" * 32 not in host.machines


def test_reconcile_goes_on_past_a_machine_it_cannot_take_over(
    machine: Machine, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = rows.machine(rows.app())
    services.start(machine=other)
    for one in (machine, other):
        host.set_state(one.id.hex, MachineState.PAUSED)
    take_report = observe.take_report

    def refuse(row: Machine, report: MachineReport) -> Machine:
        if row.id == machine.id:
            raise DataError("value out of range")
        return take_report(row, report)

    monkeypatch.setattr(observe, "take_report", refuse)
    tasks.reconcile()
    other.refresh_from_db()
    assert other.state == "paused"


def test_reconcile_starts_again_what_the_host_lost(machine: Machine, host: FakeHost) -> None:
    host.machines.clear()
    tasks.reconcile()
    assert machine.id.hex in host.machines
    machine.refresh_from_db()
    assert machine.state == "booting"
    assert machine.transitions.filter(code="machine:lost").exists()


def test_reconcile_leaves_a_machine_alone_that_its_deploy_has_not_sent_yet(edge: FakeEdge, host: FakeHost) -> None:
    rows.machine(rows.app())
    tasks.reconcile()
    assert not host.machines


def test_a_changed_policy_reaches_the_host(machine: Machine, host: FakeHost) -> None:
    apps.set_policy(app=machine.environment.app, idle_period_s=7, egress=Egress.OPEN)
    tasks.sweep()
    tasks.sweep()
    ((machine_id, policy),) = host.policies
    assert (machine_id, policy.idle_period_s, policy.egress) == (machine.id.hex, 7, Egress.OPEN)


def test_a_sweep_goes_on_after_a_machine_it_could_not_help(machine: Machine, host: FakeHost) -> None:
    host.refuse["PATCH machines/policy"] = (503, ErrorBody("host:busy", "later"))
    apps.set_policy(app=machine.environment.app, idle_period_s=7)
    tasks.sweep()
    assert not host.policies


def test_the_emptiest_host_is_chosen() -> None:
    candidates = [placement.Candidate("b", 1), placement.Candidate("a", 1), placement.Candidate("c", 5)]
    assert placement.choose(candidates) == "a"
    assert placement.choose([]) is None


def test_a_hosts_token_is_its_own() -> None:
    services.ensure_host(name="host-9", token="t" * 40)
    assert services.authenticate_host(name="host-9", token="t" * 40)
    assert services.authenticate_host(name="host-9", token="x" * 40) is None
    assert services.authenticate_host(name="host-0", token="t" * 40) is None
