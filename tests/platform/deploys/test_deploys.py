"""What starts a deploy, what ends it early, and what deleting an app leaves."""

from __future__ import annotations

import pytest

from control.applications import queries as applications
from control.applications.models import App
from control.builds import services as builds
from control.builds.models import Build
from control.builds.states import BuildState
from control.deploys import pipeline, services, tasks
from control.deploys.models import Deploy
from control.deploys.states import Outcome, Phase
from control.errors import UserError
from control.releases.models import Release
from control.routes import queries as routes
from control.sources import spool
from hosts.wire.commands import BuildReport, Failure
from tests.platform import rows
from tests.platform.deploys.work import (
    finish,
    live_release,
    work_once,
    work_until,
)
from tests.platform.fakehost import FakeEdge, FakeHost

pytestmark = pytest.mark.django_db


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
