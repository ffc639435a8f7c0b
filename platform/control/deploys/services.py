"""Verbs on deploys: accept a push, change variables, delete an app, and the two ways a deploy ends early.

At most one deploy of an environment is unfinished (the database holds that). A newer push takes the place of an older
one as long as that has not begun to switch; during a switch, which takes a moment, a push is refused and may be
repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Max

from control import clock
from control.accounts.models import User
from control.applications import queries as applications
from control.applications import services as app_services
from control.applications.models import App, Environment
from control.builds import services as builds
from control.deploys import journal
from control.deploys.models import Deploy, Reason
from control.deploys.states import ABORTABLE, Outcome, Phase
from control.dispatch import send
from control.errors import Kind, UserError
from control.hostapi import HostRefused, HostUnreachable
from control.machines import services as machines
from control.machines.models import Machine
from control.machines.states import Lifecycle
from control.routes import queries as routes
from control.routes import services as route_services
from control.sources.models import Push
from hosts.wire.spec import Egress

# git moves the branch just after our answer: for that long a push made from an older state of the branch is told to
# fetch first.
REF_SETTLE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Received:
    """A push as the hook describes it; the source is in the spool already, under `id`."""

    id: uuid.UUID
    ref: str
    commit: str
    old_commit: str  # "" for a new branch
    subject: str
    archive_bytes: int


def accept_push(*, environment: Environment, user: User, received: Received) -> Deploy:
    """The deploy of this push.

    The same commit pushed again while its deploy is the newest is that deploy, not another one.
    """
    with transaction.atomic():
        environment = hold(environment)
        if environment.app.deleted_at is not None:
            raise UserError("app:deleted", "The app was deleted.", Kind.NOT_FOUND)
        known = Deploy.objects.filter(push_id=received.id).first()
        if known is not None:
            return known
        newest = Deploy.objects.filter(environment=environment).order_by("-number").first()
        if newest is not None and newest.push is not None:
            same = newest.push.commit == received.commit
            if same and (not newest.outcome or (newest.outcome == Outcome.SUCCEEDED and _is_live(newest))):
                return newest
            _refuse_race(newest, received)
        if newest is not None and not newest.outcome and not supersede(newest):
            raise UserError(
                "push:switching", "The deploy before this one is just going live: push again.", Kind.CONFLICT
            )
        push = Push.objects.create(
            id=received.id,
            environment=environment,
            user=user,
            ref=received.ref,
            commit=received.commit,
            old_commit=received.old_commit,
            subject=received.subject,
            archive_bytes=received.archive_bytes,
        )
        build = builds.create(environment=environment, push=push)
        return _begin(environment, Reason.PUSH, push=push, build=build)


def set_variables(*, app: App, values: Mapping[str, str | None]) -> Deploy | None:
    """Store variables and, where something is live, make them live: the same image in a new release."""
    environment = applications.production(app)
    with transaction.atomic():
        environment = hold(environment)
        unfinished = Deploy.objects.filter(environment=environment, outcome="").first()
        if unfinished is not None and unfinished.phase not in (Phase.QUEUED, Phase.BUILD):
            raise UserError("deploy:in_progress", "A deploy is under way: try again when it has ended.", Kind.CONFLICT)
        changed = app_services.store_variables(environment=environment, values=values)
        if not changed or unfinished is not None or routes.live_machine(environment) is None:
            return None  # a deploy that has not made its release yet takes the new values by itself
        return _begin(environment, Reason.CONFIG)


def apply_policy(
    *,
    app: App,
    idle_period_s: int | None = None,
    suspend_after_s: int | None = None,
    egress: Egress | None = None,
    egress_allow: Sequence[str] | None = None,
) -> App:
    """Store the settings and tell the host at once if it answers; if not, the sweep does."""
    app = app_services.set_policy(
        app=app,
        idle_period_s=idle_period_s,
        suspend_after_s=suspend_after_s,
        egress=egress,
        egress_allow=egress_allow,
    )
    machine = routes.live_machine(applications.production(app))
    if machine is not None:
        try:
            machines.sync_policy(machine=machine)
        except (HostUnreachable, HostRefused):
            return app
    return app


def delete_app(*, app: App) -> None:
    """The app is gone for its owner now; its machines go in a moment. Sessions and charges stay."""
    with transaction.atomic():
        environment = hold(applications.production(app))
        if not app_services.mark_deleted(app=app):
            return
        for deploy in Deploy.objects.filter(environment=environment, outcome=""):
            _end(deploy, Outcome.SUPERSEDED, "deploy:app_deleted", "The app was deleted.")
        route_services.remove(environment=environment)
        for machine in Machine.objects.filter(environment=environment, lifecycle=Lifecycle.WANTED.value):
            machines.retire(machine=machine, drain_s=0)
        send("deploys.clear_app", app.id.hex)


def supersede(deploy: Deploy) -> bool:
    """End an unfinished deploy because a newer one takes its place. False once it has begun to switch."""
    return _end(deploy, Outcome.SUPERSEDED, "deploy:superseded", "A newer push took its place.")


def fail(deploy: Deploy, *, code: str, message: str) -> bool:
    """End a deploy that did not work. What was live stays live. False if it had ended or has begun to switch."""
    return _end(deploy, Outcome.FAILED, code, message)


def hold(environment: Environment) -> Environment:
    """The environment with its row locked: deploys of one environment are made and numbered one after the other."""
    return Environment.objects.select_for_update(of=("self",)).select_related("app").get(id=environment.id)


def _begin(environment: Environment, reason: Reason, **parts: object) -> Deploy:
    highest: int | None = Deploy.objects.filter(environment=environment).aggregate(n=Max("number"))["n"]
    deploy = Deploy.objects.create(environment=environment, number=(highest or 0) + 1, reason=reason.value, **parts)
    journal.step(deploy.id, Phase.QUEUED.value)
    send("deploys.advance", deploy.id.hex)
    return deploy


def _end(deploy: Deploy, outcome: Outcome, code: str, message: str) -> bool:
    now = clock.now()
    with transaction.atomic():
        ended = Deploy.objects.filter(id=deploy.id, phase__in=[p.value for p in ABORTABLE], outcome="").update(
            outcome=outcome.value, code=code, message=message, finished_at=now, lease=None, lease_until=None
        )
        if not ended:
            return False
        journal.step(deploy.id, outcome.value, code)
        deploy.refresh_from_db()
        if deploy.machine is not None:
            machines.retire(machine=deploy.machine, drain_s=0)
        if deploy.build is not None:
            builds.cancel(build=deploy.build)
        tidy_later(deploy)
    return True


def tidy_later(deploy: Deploy) -> None:
    """Once committed: let the host forget the build, and remove machines that should go."""
    send("deploys.tidy", deploy.id.hex)


def _is_live(deploy: Deploy) -> bool:
    machine = routes.live_machine(deploy.environment)
    return machine is not None and machine.release.commit == (deploy.push.commit if deploy.push else "")


def _refuse_race(newest: Deploy, received: Received) -> None:
    settled = newest.finished_at is None or clock.now() - newest.finished_at > REF_SETTLE
    if newest.outcome != Outcome.SUCCEEDED or settled or newest.push is None:
        return
    if received.old_commit != newest.push.commit:
        raise UserError("push:raced", "Another push went live at this moment: fetch, then push again.", Kind.CONFLICT)
