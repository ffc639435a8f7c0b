"""A deploy from push to live, against a host that answers over the real wire."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings

from control import clock
from control.applications import queries as applications
from control.applications.models import App
from control.builds import services as builds
from control.builds.models import Build
from control.builds.states import BuildState
from control.deploys import lease, pipeline, queries, services, tasks
from control.deploys.models import Deploy, LogChunk
from control.deploys.states import Outcome, Phase
from control.errors import UserError
from control.machines import services as machines
from control.machines.models import Machine
from control.machines.states import Lifecycle
from control.releases.models import Release
from control.routes import queries as routes
from control.sources import spool
from hosts.wire.commands import BuildReport, ErrorBody, Failure, Socket
from tests.platform import rows
from tests.platform.conftest import CommitCallbacks
from tests.platform.fakehost import FakeEdge, FakeHost

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time between polls is no part of what is tested here."""
    monkeypatch.setattr(pipeline, "BUILD_PAUSE_S", 0)
    monkeypatch.setattr(pipeline, "SWITCH_PAUSE_S", 0)
    monkeypatch.setattr(machines, "DRAIN_S", 0)


@pytest.fixture
def app() -> App:
    return rows.app()


def finish(deploy: Deploy, tries: int = 50) -> Deploy:
    """Work on it until it ends, as the worker and the sweep do together."""
    for _ in range(tries):
        pipeline.work(deploy.id)
        deploy.refresh_from_db()
        if deploy.outcome:
            return deploy
    raise AssertionError(f"{deploy} did not end")


def log_of(deploy: Deploy) -> str:
    return "\n".join(queries.log_page(deploy, after=0).lines)


def live_release(app: App) -> int | None:
    machine = routes.live_machine(applications.production(app))
    return machine.release.number if machine else None


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


def test_a_newer_push_takes_the_place_of_one_that_builds(app: App, host: FakeHost) -> None:
    host.plan(app.slug).hold_build = True
    first = rows.deploy(app)
    work_once(first, Phase.BUILD)
    second = rows.deploy(app)
    first.refresh_from_db()
    assert (first.outcome, first.code) == (Outcome.SUPERSEDED, "deploy:superseded")
    assert first.build is not None
    assert Build.objects.get(id=first.build.id).state == BuildState.CANCELLED
    host.plan(app.slug).hold_build = False
    assert not pipeline.work(first.id)
    assert finish(second).outcome == Outcome.SUCCEEDED
    assert live_release(app) == 1


def test_a_worker_that_was_overtaken_changes_nothing(app: App, edge: FakeEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows.deploy(app)
    ask = builds.follow

    def follow_while_someone_pushes(*, build: Build, wait_s: int) -> BuildReport | None:
        report = ask(build=build, wait_s=wait_s)
        monkeypatch.setattr(builds, "follow", ask)
        rows.deploy(app)
        return report

    monkeypatch.setattr(builds, "follow", follow_while_someone_pushes)
    pipeline.work(first.id)
    first.refresh_from_db()
    assert first.outcome == Outcome.SUPERSEDED
    assert not Release.objects.exists()


def test_the_same_commit_again_joins_its_deploy(app: App, host: FakeHost) -> None:
    commit = rows.commit()
    first = rows.deploy(app, of=commit)
    assert rows.deploy(app, of=commit) == first
    finish(first)
    assert rows.deploy(app, of=commit) == first
    assert Deploy.objects.count() == 1


def test_the_same_commit_again_after_a_failure_is_a_new_deploy(app: App, host: FakeHost) -> None:
    commit = rows.commit()
    host.plan(app.slug).build_failure = Failure("build:step_failed", "installing", "pip failed")
    first = finish(rows.deploy(app, of=commit))
    host.plan(app.slug).build_failure = None
    assert finish(rows.deploy(app, of=commit)).outcome == Outcome.SUCCEEDED
    assert first.outcome == Outcome.FAILED


def test_a_push_during_the_switch_is_told_to_come_again(app: App, edge: FakeEdge) -> None:
    deploy = rows.deploy(app)
    work_until(deploy, Phase.SWITCH)
    with pytest.raises(UserError) as refused:
        rows.deploy(app)
    assert refused.value.code == "push:switching"


def test_a_push_from_before_the_branch_moved_is_told_to_fetch(app: App, edge: FakeEdge) -> None:
    deploy = finish(rows.deploy(app))
    assert deploy.push is not None
    with pytest.raises(UserError) as refused:
        rows.deploy(app, old="1" * 40)
    assert refused.value.code == "push:raced"
    assert rows.deploy(app, old=deploy.push.commit).number == 2


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
    with dying_once(host, verb, when, monkeypatch):
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


def test_new_variables_make_a_new_release_of_the_same_image(app: App, edge: FakeEdge, host: FakeHost) -> None:
    finish(rows.deploy(app))
    deploy = services.set_variables(app=app, values={"GREETING": "hello"})
    assert deploy is not None
    finish(deploy)
    assert live_release(app) == 2
    machine = routes.live_machine(applications.production(app))
    assert machine is not None
    assert ("GREETING", "hello") in host.machines[machine.id.hex].spec.process.env
    assert services.set_variables(app=app, values={"GREETING": "hello"}) is None


def test_variables_before_the_first_release_wait_for_it(app: App, edge: FakeEdge, host: FakeHost) -> None:
    assert services.set_variables(app=app, values={"GREETING": "hello"}) is None
    finish(rows.deploy(app))
    (machine,) = host.machines.values()
    assert dict(machine.spec.process.env)["GREETING"] == "hello"
    assert dict(machine.spec.process.env)["BURROW_PUBLIC_HOST"] == f"{app.slug}.localhost"


def test_a_deleted_app_leaves_nothing_on_the_host(app: App, edge: FakeEdge, host: FakeHost) -> None:
    finish(rows.deploy(app))
    services.delete_app(app=app)
    tasks.clear_app(app.id.hex)
    assert host.machines == {}
    assert edge.machine_of(f"{app.slug}.localhost") is None
    again = rows.app(name=app.slug)
    assert again.id != app.id


def test_deleting_an_app_ends_its_deploy(app: App, edge: FakeEdge, host: FakeHost) -> None:
    deploy = rows.deploy(app)
    work_until(deploy, Phase.BOOT)
    services.delete_app(app=app)
    deploy.refresh_from_db()
    assert (deploy.outcome, deploy.code) == (Outcome.SUPERSEDED, "deploy:app_deleted")
    tasks.clear_app(app.id.hex)
    assert host.machines == {}


def test_the_source_leaves_the_spool_in_the_end(app: App, edge: FakeEdge) -> None:
    deploy = finish(rows.deploy(app))
    assert deploy.push_id is not None
    assert spool.source_path(deploy.push_id).exists()
    tasks.tidy(deploy.id.hex)
    assert not spool.source_path(deploy.push_id).exists()


def test_every_task_ends_far_below_the_visibility_timeout() -> None:
    longest_call_s = 120
    assert (pipeline.SLICE_S + 3 * longest_call_s) * 4 < settings.VISIBILITY_TIMEOUT_S


# ---- how the tests above stop a worker where they want


class WorkerKilledError(BaseException):
    """Stands for kill -9: nothing in the code under test catches it."""


@contextlib.contextmanager
def dying_once(host: FakeHost, verb: str, when: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The worker dies the first time it makes this call: before the host hears of it, or after it did."""
    from control.hostapi import HostApi  # noqa: PLC0415 - patched here only

    real = HostApi._request
    died: list[str] = []

    def request(self: HostApi, method: str, path: str, body: object, timeout_s: float) -> bytes:
        parts = path.split("?")[0].strip("/").split("/")[1:]
        hit = f"{method} {'/'.join([parts[0], *parts[2:]])}" == verb and not died
        if hit and when == "before":
            died.append(verb)
            raise WorkerKilledError
        answer = real(self, method, path, body, timeout_s)  # type: ignore[arg-type]
        if hit:
            died.append(verb)
            raise WorkerKilledError
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(HostApi, "_request", request)
        # kill -9 leaves the lease held
        patch.setattr(lease.Lease, "release", lambda self: None)
        yield
    assert died == [verb]


def step(deploy: Deploy) -> None:
    """One turn of one phase."""
    held = lease.take(deploy.id)
    assert held is not None
    loaded = pipeline._load(deploy.id)
    try:
        pipeline.PHASES[Phase(loaded.phase)](loaded, held)
    finally:
        held.release()
    deploy.refresh_from_db()


def work_once(deploy: Deploy, phase: Phase) -> None:
    """Turns until the deploy is in `phase`, then one more."""
    work_until(deploy, phase)
    step(deploy)


def work_until(deploy: Deploy, phase: Phase) -> None:
    for _ in range(50):
        if deploy.phase == phase:
            return
        step(deploy)
    raise AssertionError(f"{deploy} did not reach {phase}")
