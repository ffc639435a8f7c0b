"""Verbs on builds: create, send to a host, follow, cancel, forget. Each may be called again at any time.

The host keeps a build by its id, so sending twice is harmless; a host that lost it is sent it again, a bounded number
of times.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction
from django.db.models import F

from control import clock
from control.applications.models import Environment
from control.builds.models import Build, BuildTransition
from control.builds.states import FINAL, BuildEvent, BuildState, after
from control.hostapi import HostApi, HostRefused
from control.sources import spool
from control.sources.models import Push
from hosts.wire.commands import BuildReport, BuildSpec, Outcome

BUILD_TIMEOUT_S = 900
SENDS_MAX = 3


def create(*, environment: Environment, push: Push) -> Build:
    """A build of this push. Part of the caller's transaction."""
    return Build.objects.create(environment=environment, push=push)


def send(*, build: Build, host: str, beat: Callable[[], None]) -> None:
    """Hand the build and its source to a host. `beat` is called now and then while a long upload goes on."""
    if build.sends >= SENDS_MAX:
        fail(build=build, code="build:lost", message=f"The build was lost by its host {SENDS_MAX} times.")
        return
    api = HostApi(host)
    api.put_build(BuildSpec(build_id=build.id.hex, app=build.environment.app.slug, timeout_s=BUILD_TIMEOUT_S))
    try:
        with spool.open_source(build.push_id, beat=beat) as tar:
            api.put_source(build.id.hex, tar)
    except FileNotFoundError:
        fail(build=build, code="build:source_lost", message="The pushed source is no longer there: push again.")
        return
    _move(build, BuildEvent.SEND, host=host, sends=F("sends") + 1, started_at=clock.now(), next_line=0)


def follow(*, build: Build, wait_s: int) -> BuildReport | None:
    """The host's news of the build since `build.next_line`; None if the host does not know it any more."""
    try:
        return HostApi(build.host).build(build.id.hex, after=build.next_line, wait_s=wait_s)
    except HostRefused as e:
        if e.status == 404:
            _move(build, BuildEvent.LOSE, detail="the host does not know it any more")
            return None
        raise


def settle(*, build: Build, report: BuildReport) -> None:
    """Take over how a build ended."""
    if report.outcome is Outcome.SUCCEEDED and report.image is not None:
        image = report.image
        _move(
            build,
            BuildEvent.SUCCEED,
            phase=report.phase.value,
            image_digest=str(image.digest),
            image_bytes=image.size_bytes,
            kind=image.kind,
            command=image.command,
            cwd=image.cwd,
            finished_at=clock.now(),
        )
        return
    code, message = "build:failed", "The build failed."
    if report.outcome is Outcome.CANCELLED:
        code, message = "build:cancelled", "The build was cancelled on its host."
    if report.failure is not None:
        code, message = report.failure.code, report.failure.message
    fail(build=build, code=code, message=message, phase=report.phase.value)


def fail(*, build: Build, code: str, message: str, phase: str | None = None) -> None:
    """The build failed for good."""
    phase = phase or build.phase
    _move(build, BuildEvent.FAIL, detail=code, phase=phase, code=code, message=message, finished_at=clock.now())


def cancel(*, build: Build) -> bool:
    """Nobody wants the build any more. False if it had ended. Part of the caller's transaction or its own."""
    return _move(build, BuildEvent.CANCEL, finished_at=clock.now())


def forget(*, build: Build) -> None:
    """Let the host forget an ended build (the image stays), and drop its source from the spool."""
    if BuildState(build.state) not in FINAL:
        raise ValueError(f"{build} has not ended")
    spool.remove_source(build.push_id)
    if build.host:
        HostApi(build.host).delete_build(build.id.hex)


def _move(build: Build, event: BuildEvent, *, detail: str = "", **fields: object) -> bool:
    """Compare-and-set with its transition row. False: someone else was quicker, and `build` is as they left it."""
    old = BuildState(build.state)
    if old in FINAL:
        return False
    new = after(old, event)
    with transaction.atomic():
        changed = Build.objects.filter(id=build.id, state=old.value).update(state=new.value, **fields)
        if changed:
            BuildTransition.objects.create(build=build, old=old.value, new=new.value, detail=detail)
    build.refresh_from_db()
    return bool(changed)
