"""Deploys in the background.

Tasks take ids, are safe to run twice, and end by themselves far below the broker's visibility timeout.
"""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

from celery import shared_task
from celery.signals import worker_shutting_down
from django.db.models import Q

from control import clock, log
from control.applications.models import App
from control.builds import services as builds
from control.builds.states import FINAL, BuildState
from control.deploys import pipeline
from control.deploys.models import Deploy
from control.dispatch import send
from control.errors import RetryLater
from control.hostapi import HostRefused
from control.machines import tasks as machine_tasks
from control.machines.models import Machine
from control.machines.states import Lifecycle
from control.routes import services as routes
from control.sources import repositories

logger = log.get(__name__)

SWEEP_AFTER = timedelta(seconds=4)  # a deploy nobody works on for that long is sent again
SWEEP_MAX = 100
DRAIN_MARGIN_S = 1.0

_stopping = threading.Event()


@worker_shutting_down.connect
def _note_shutdown(**_: object) -> None:
    _stopping.set()


@shared_task(name="deploys.advance")
def advance(deploy_id: str) -> None:
    """Bring a deploy on for one slice, and hand on what is left."""
    if pipeline.work(uuid.UUID(deploy_id), stopping=_stopping.is_set) and not _stopping.is_set():
        send("deploys.advance", deploy_id)


@shared_task(name="deploys.sweep")
def sweep() -> None:
    """Send every unfinished deploy that nobody works on: its message was lost, or its worker died."""
    now = clock.now()
    free = Q(lease=None) | Q(lease_until__lt=now)
    idle = Deploy.objects.filter(free, outcome="", created_at__lt=now - SWEEP_AFTER).order_by("created_at")
    for deploy in idle[:SWEEP_MAX]:
        if not pipeline.give_up_stalled(deploy):
            send("deploys.advance", deploy.id.hex)


@shared_task(name="deploys.tidy")
def tidy(deploy_id: str) -> None:
    """After the end: the host forgets the build, the source leaves the spool, machines that should go are removed."""
    deploy = Deploy.objects.select_related("build__environment__app", "environment").get(id=deploy_id)
    if deploy.build is not None and BuildState(deploy.build.state) in FINAL:
        try:
            builds.forget(build=deploy.build)
        except (RetryLater, HostRefused) as e:
            logger.warning("build not forgotten by its host", build=deploy.build.id.hex, error=str(e))
    _remove_retired(deploy.environment_id)


@shared_task(name="deploys.clear_app")
def clear_app(app_id: str) -> None:
    """After an app was deleted: edges forget its hostname, its machines go, its repository too."""
    app = App.objects.get(id=app_id)
    if app.deleted_at is None:
        return
    routes.publish()
    for environment in app.environments.all():
        _remove_retired(environment.id)
    repositories.remove(app)


def _remove_retired(environment_id: int) -> None:
    """Now where the drain is over, and once more when it will be; `machines.sweep` does the rest."""
    now = clock.now()
    for machine in Machine.objects.filter(environment_id=environment_id, lifecycle=Lifecycle.RETIRING.value):
        until = machine.drain_until
        if until is not None and until > now:
            send("machines.remove", machine.id.hex, countdown_s=(until - now).total_seconds() + DRAIN_MARGIN_S)
        else:
            machine_tasks.remove(machine.id.hex)
