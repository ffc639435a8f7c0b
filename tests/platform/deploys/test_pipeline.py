"""A deploy from push to live, against a host that answers over the real wire."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest
from django.conf import settings

from control import clock
from control.applications.models import App
from control.builds import services as builds
from control.deploys import lease, pipeline, queries, tasks
from control.deploys.models import Deploy, LogChunk
from control.deploys.states import Outcome, Phase
from control.machines.models import Machine
from control.machines.states import Lifecycle
from control.releases.models import Release
from control.routes import queries as routes
from hosts.wire.commands import ErrorBody, Failure, Socket
from hosts.wire.states import MachineState
from tests.platform import rows
from tests.platform.conftest import CommitCallbacks
from tests.platform.deploys.work import (
    WorkerKilledError,
    dying_once,
    finish,
    live_release,
    log_of,
    step,
    work_once,
    work_until,
)
from tests.platform.fakehost import FakeEdge, FakeHost

pytestmark = pytest.mark.django_db


def test_a_push_goes_live(app: App, edge: FakeEdge, host: FakeHost) -> None:
    deploy = finish(rows.deploy(app))
    assert (deploy.outcome, deploy.phase) == (Outcome.SUCCEEDED, Phase.LIVE)
    view = routes.app_view(app)
    assert (view.state, view.release and view.release.number) == ("running", 1)
    assert view.machine is not None
    assert edge.machine_of(f"{app.slug}.localhost") == view.machine.id.hex
    assert host.machines[view.machine.id.hex].checkpoint
    assert [s.phase for s in queries.deploys_of(app)[0].steps][:2] == ["queued", "build"]
    log = log_of(deploy)
    assert "Installing flask" in log
    assert app.slug in log


def test_the_next_push_replaces_the_machine(app: App, edge: FakeEdge, host: FakeHost) -> None:
    finish(rows.deploy(app))
    (old,) = host.machines
    second = finish(rows.deploy(app))
    assert live_release(app) == 2
    assert edge.machine_of(f"{app.slug}.localhost") != old
    tasks.tidy(second.id.hex)
    assert old not in host.machines
    assert Machine.objects.get(id=old).lifecycle == Lifecycle.GONE
    assert second.build_id is not None
    assert second.build_id.hex not in host.builds


def test_a_machine_with_requests_in_flight_is_drained_first(app: App, host: FakeHost) -> None:
    finish(rows.deploy(app))
    (old,) = host.machines
    host.machines[old].in_flight = 1
    second = finish(rows.deploy(app))
    tasks.tidy(second.id.hex)
    assert old in host.machines
    host.machines[old].in_flight = 0
    tasks.tidy(second.id.hex)
    assert old not in host.machines


def test_a_failed_build_says_why_and_leaves_the_old_release_live(app: App, host: FakeHost) -> None:
    finish(rows.deploy(app))
    host.plan(app.slug).build_failure = Failure("build:nothing_to_run", "detecting", "Looked for Procfile, found none.")
    deploy = finish(rows.deploy(app))
    assert (deploy.outcome, deploy.phase, deploy.code) == (Outcome.FAILED, Phase.BUILD, "build:nothing_to_run")
    assert deploy.message == "Looked for Procfile, found none."
    assert live_release(app) == 1
    assert len(host.machines) == 1


def test_a_failed_check_shows_what_listens_and_removes_the_new_machine(app: App, host: FakeHost) -> None:
    finish(rows.deploy(app))
    plan = host.plan(app.slug)
    plan.boot_failure = Failure("check:not_listening", "check", "Nothing listens on a port.")
    plan.listening = (Socket("127.0.0.1", 5432),)
    plan.log_tail = ("Traceback", "KeyError: 'X'")
    deploy = finish(rows.deploy(app))
    assert (deploy.outcome, deploy.phase, deploy.code) == (Outcome.FAILED, Phase.BOOT, "check:not_listening")
    log = log_of(deploy)
    assert "127.0.0.1:5432" in log
    assert "KeyError: 'X'" in log
    tasks.tidy(deploy.id.hex)
    assert len(host.machines) == 1
    assert live_release(app) == 1


def test_a_full_host_fails_the_deploy_with_its_code(app: App, host: FakeHost) -> None:
    host.refuse["PUT machines"] = (507, ErrorBody("host:full", "No memory left."))
    deploy = finish(rows.deploy(app))
    assert (deploy.outcome, deploy.code) == (Outcome.FAILED, "host:full")


def test_no_checkpoint_is_no_reason_to_fail(app: App, host: FakeHost) -> None:
    host.refuse["POST machines/checkpoint"] = (507, ErrorBody("host:full", "No disk left."))
    assert finish(rows.deploy(app)).outcome == Outcome.SUCCEEDED


@pytest.mark.parametrize("state", [MachineState.FAILED, MachineState.STOPPED, None])
def test_a_machine_that_did_not_outlive_its_checkpoint_never_goes_live(
    app: App, edge: FakeEdge, host: FakeHost, state: MachineState | None
) -> None:
    finish(rows.deploy(app))
    (old,) = host.machines
    host.refuse["POST machines/checkpoint"] = (409, ErrorBody("machine:not_running", "the machine did not go on"))

    def before(verb: str) -> None:
        if verb == "POST machines/checkpoint":
            (new,) = set(host.machines) - {old}
            if state is None:
                del host.machines[new]
            else:
                host.set_state(new, state)

    host.before = before
    deploy = finish(rows.deploy(app))
    assert (deploy.outcome, deploy.phase) == (Outcome.FAILED, Phase.CHECKPOINT)
    assert deploy.code == ("machine:unknown" if state is None else "boot:stopped")
    assert live_release(app) == 1
    assert edge.machine_of(f"{app.slug}.localhost") == old


def test_a_machine_that_boots_again_after_its_checkpoint_is_waited_for(app: App, host: FakeHost) -> None:
    host.refuse["POST machines/checkpoint"] = (409, ErrorBody("machine:not_running", "the machine did not go on"))

    def before(verb: str) -> None:
        if verb == "POST machines/checkpoint":
            (machine,) = host.machines
            host.set_state(machine, MachineState.BOOTING)

    host.before = before
    assert finish(rows.deploy(app)).outcome == Outcome.SUCCEEDED


def test_a_build_its_host_forgot_is_sent_again(app: App, host: FakeHost) -> None:
    host.plan(app.slug).hold_build = True
    deploy = rows.deploy(app)
    work_once(deploy, Phase.BUILD)
    with contextlib.suppress(StopIteration):
        step(deploy)
    host.builds.clear()
    host.plan(app.slug).hold_build = False
    assert finish(deploy).outcome == Outcome.SUCCEEDED
    assert host.counts["PUT builds/source"] == 2


def test_a_build_lost_again_and_again_fails(app: App, host: FakeHost) -> None:
    deploy = rows.deploy(app)
    host.refuse["GET builds"] = (404, ErrorBody("build:unknown", "no such build"))
    deploy = finish(deploy)
    assert (deploy.outcome, deploy.code) == (Outcome.FAILED, "build:lost")
    assert host.counts["PUT builds/source"] == builds.SENDS_MAX


def test_an_unreachable_host_is_waited_for_and_then_given_up(app: App, edge: FakeEdge) -> None:
    edge.linked = False
    deploy = rows.deploy(app)
    assert not pipeline.work(deploy.id)
    deploy.refresh_from_db()
    assert not deploy.outcome
    Deploy.objects.filter(id=deploy.id).update(phase_since=clock.now() - timedelta(hours=1))
    pipeline.work(deploy.id)
    deploy.refresh_from_db()
    assert (deploy.outcome, deploy.code) in [(Outcome.FAILED, "host:unreachable"), (Outcome.FAILED, "build:timeout")]


def test_with_every_edge_down_the_switch_waits_and_the_old_machine_stays(
    app: App, edge: FakeEdge, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(rows.deploy(app))
    (old,) = host.machines
    deploy = rows.deploy(app)
    work_until(deploy, Phase.SWITCH)
    edge.stop()
    pipeline.work(deploy.id)
    deploy.refresh_from_db()
    assert (deploy.phase, deploy.outcome) == (Phase.SWITCH, "")
    assert Machine.objects.get(id=old).lifecycle == Lifecycle.WANTED
    edge.start()
    assert finish(deploy).outcome == Outcome.SUCCEEDED
    assert edge.machine_of(f"{app.slug}.localhost") != old


VERBS = [
    "PUT builds",
    "PUT builds/source",
    "GET builds",
    "PUT machines",
    "GET machines",
    "POST machines/checkpoint",
]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_at_a_call_is_followed_by_another(
    app: App, edge: FakeEdge, host: FakeHost, verb: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dying_once(verb, when, monkeypatch):
        deploy = rows.deploy(app)
        with contextlib.suppress(WorkerKilledError):
            for _ in range(10):
                pipeline.work(deploy.id)
    Deploy.objects.filter(id=deploy.id).update(lease_until=clock.now() - timedelta(seconds=1))
    assert finish(deploy).outcome == Outcome.SUCCEEDED
    assert Release.objects.count() == 1
    assert Machine.objects.count() == 1
    assert len(host.machines) == 1
    lines = [line for chunk in LogChunk.objects.order_by("first") for line in chunk.lines]
    assert sum("Installing flask" in line for line in lines) == 1


def test_two_workers_at_once_are_one(app: App, edge: FakeEdge) -> None:
    deploy = rows.deploy(app)
    held = lease.take(deploy.id)
    assert held is not None
    assert not pipeline.work(deploy.id)
    deploy.refresh_from_db()
    assert deploy.phase == Phase.QUEUED
    held.release()
    assert finish(deploy).outcome == Outcome.SUCCEEDED


def test_a_deploy_that_ended_is_not_worked_on_again(app: App, edge: FakeEdge, host: FakeHost) -> None:
    deploy = finish(rows.deploy(app))
    counts = dict(host.counts)
    tables = len(edge.tables)
    assert not pipeline.work(deploy.id)
    assert dict(host.counts) == counts
    assert len(edge.tables) == tables


def test_the_sweep_sends_what_nobody_works_on(
    app: App, sent: list[tuple[str, tuple[str, ...]]], django_capture_on_commit_callbacks: CommitCallbacks
) -> None:
    deploy = rows.deploy(app)
    Deploy.objects.filter(id=deploy.id).update(created_at=clock.now() - timedelta(minutes=1))
    with django_capture_on_commit_callbacks(execute=True):
        tasks.sweep()
    assert sent == [("deploys.advance", (deploy.id.hex,))]


def test_the_sweep_gives_up_what_is_stalled(app: App) -> None:
    deploy = rows.deploy(app)
    ages_ago = clock.now() - timedelta(hours=2)
    Deploy.objects.filter(id=deploy.id).update(created_at=ages_ago, phase_since=ages_ago)
    tasks.sweep()
    deploy.refresh_from_db()
    assert (deploy.outcome, deploy.code) == (Outcome.FAILED, "deploy:stalled")


def test_every_task_ends_far_below_the_visibility_timeout() -> None:
    longest_call_s = 120
    assert (pipeline.SLICE_S + 3 * longest_call_s) * 4 < settings.VISIBILITY_TIMEOUT_S
