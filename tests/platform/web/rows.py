"""Rows of a platform in use: an app with releases, a machine, deploys with logs, sessions and charges.

The pages only read, so what the pipeline would have written is written here by hand, through the real models and their
constraints.
"""

from __future__ import annotations

import datetime as dt
import uuid

from django.utils import timezone

from control.accounts import services as accounts
from control.accounts.models import User
from control.applications import services as applications
from control.applications.models import App
from control.applications.queries import production
from control.billing.models import Entry
from control.billing.rates import charge_micros, rate_micros_per_s
from control.builds.models import Build
from control.builds.states import BuildState
from control.deploys.models import Deploy, DeployStep, LogChunk
from control.deploys.states import Outcome, Phase
from control.machines.models import Host, Machine
from control.machines.states import Lifecycle
from control.metering.models import Session, Wake
from control.releases.models import Release
from control.routes.models import Route
from control.sources.models import Push
from hosts.wire.events import Cause, EndCause
from hosts.wire.spec import ImageDigest, MachineId, MachineSpec, Process
from hosts.wire.states import MachineState
from tests.platform.fakehost import FakeHost, FakeMachine

PASSWORD = "a burrow for every app"
STEP_SECONDS = {
    "queued": 0.2,
    "build": 1.0,
    "build.detecting": 0.4,
    "build.installing": 18.3,
    "build.packing": 2.1,
    "boot": 5.6,
    "checkpoint": 0.3,
    "switch": 0.1,
    "live": 0.0,
}


def ago(**parts: float) -> dt.datetime:
    """A moment in the past."""
    return timezone.now() - dt.timedelta(**parts)


def person(email: str = "ada@example.org") -> User:
    """Someone with an account."""
    return accounts.sign_up(email=email, password=PASSWORD)


def app_of(user: User, name: str = "shop") -> App:
    """An app to which nothing was pushed yet."""
    return applications.create_app(owner=user, name=name)


def pushed(app: App, number: int, *, at: dt.datetime, subject: str = "Sell socks as well") -> Push:
    """A commit received."""
    environment = production(app)
    return Push.objects.create(
        environment=environment,
        user=app.owner,
        ref="refs/heads/main",
        commit=f"{number:02d}9c2ab1" + "0" * 32,
        old_commit="",
        subject=subject,
        archive_bytes=1_000,
        received_at=at,
    )


def deploying(
    app: App,
    *,
    number: int = 1,
    phase: Phase = Phase.BUILD,
    outcome: str = "",
    at: dt.datetime | None = None,
    lines: list[str] | None = None,
    message: str = "",
    code: str = "",
    subject: str = "Sell socks as well",
) -> Deploy:
    """A deploy that has come as far as `phase`."""
    at = at or ago(minutes=4)
    push = pushed(app, number, at=at, subject=subject)
    environment = production(app)
    built = outcome == Outcome.SUCCEEDED or phase not in {Phase.QUEUED, Phase.BUILD}
    build = Build.objects.create(
        environment=environment,
        push=push,
        state=BuildState.SUCCEEDED.value if built else BuildState.RUNNING.value,
        created_at=at,
    )
    deploy = Deploy.objects.create(
        environment=environment,
        number=number,
        push=push,
        build=build,
        phase=phase.value,
        outcome=outcome,
        code=code,
        message=message,
        created_at=at,
        finished_at=at + dt.timedelta(seconds=30) if outcome else None,
    )
    reached = list(STEP_SECONDS)
    last = max(i for i, name in enumerate(reached) if name.partition(".")[0] == phase.value)
    moment = at
    for name in reached[: last + 1]:
        DeployStep.objects.create(deploy=deploy, name=name, at=moment)
        moment += dt.timedelta(seconds=STEP_SECONDS[name])
    say(deploy, *(lines or []))
    return deploy


def say(deploy: Deploy, *lines: str) -> None:
    """More lines of its log."""
    if not lines:
        return
    LogChunk.objects.create(deploy=deploy, first=deploy.log_lines, lines=list(lines))
    deploy.log_lines += len(lines)
    deploy.save(update_fields=["log_lines"])


def live(
    app: App,
    *,
    number: int = 1,
    state: str = MachineState.RUNNING,
    at: dt.datetime | None = None,
    lines: list[str] | None = None,
    subject: str = "Sell socks as well",
) -> Machine:
    """A deploy that went live, its release and the machine that serves it (in place of any earlier one)."""
    at = at or ago(minutes=5)
    deploy = deploying(
        app, number=number, phase=Phase.LIVE, outcome=Outcome.SUCCEEDED, at=at, lines=lines, subject=subject
    )
    environment = production(app)
    assert deploy.build is not None
    assert deploy.push is not None
    release = Release.objects.create(
        environment=environment,
        number=(environment.releases.count() + 1),
        build=deploy.build,
        image_digest="0" * 64,
        image_bytes=1_000_000,
        kind="python",
        command="python app.py",
        cwd="/app",
        variables_ciphertext="",
        commit=deploy.push.commit,
        subject=subject,
        created_at=at,
    )
    host, _ = Host.objects.get_or_create(name="host-0", defaults={"token_digest": "0" * 64})
    machine = Machine.objects.create(
        environment=environment,
        release=release,
        host=host,
        size=app.size,
        state=state,
        state_since=ago(minutes=3),
        created_at=at,
    )
    deploy.release, deploy.machine = release, machine
    deploy.save(update_fields=["release", "machine"])
    old = Route.objects.filter(environment=environment).first()
    if old is None:
        Route.objects.create(environment=environment, hostname=environment.hostname, machine=machine)
    else:
        Machine.objects.filter(id=old.machine_id).update(lifecycle=Lifecycle.GONE.value)
        old.machine = machine
        old.save(update_fields=["machine"])
    return machine


def on_host(host: FakeHost, machine: Machine) -> None:
    """The host has this machine, in the state that its row says."""
    spec = MachineSpec(
        machine_id=MachineId(machine.id.hex),
        app=machine.environment.app.slug,
        release=machine.release.number,
        image=ImageDigest(machine.release.image_digest),
        process=Process(command=machine.release.command),
    )
    host.machines[machine.id.hex] = FakeMachine(spec, state=MachineState(machine.state))


def woke(
    machine: Machine,
    *,
    at: dt.datetime,
    cause: Cause = Cause.REQUEST,
    **fields: object,
) -> Wake:
    """A wake, by a request and from memory unless `fields` say otherwise."""
    told: dict[str, object] = {
        "request": "e1a2b3c4-77",
        "waited": 1,
        "start": "resume",
        "queue_ms": 2.0,
        "ready_ms": 352.0,
        "first_byte_ms": 612.0,
        "steps": [{"name": "load", "ms": 98.0}, {"name": "contract", "ms": 251.5}],
    }
    return Wake.objects.create(
        event_id=uuid.uuid4().hex,
        machine=machine,
        environment=machine.environment,
        asked_at=at,
        cause=cause.value,
        **{**told, **fields},
    )


def ran(
    machine: Machine,
    *,
    started: dt.datetime,
    seconds: float | None,
    cause: Cause = Cause.REQUEST,
    end_cause: EndCause = EndCause.IDLE,
) -> Session:
    """A session, charged if it has ended (`seconds`)."""
    ended = None if seconds is None else started + dt.timedelta(seconds=seconds)
    session = Session.objects.create(
        id=uuid.uuid4().hex,
        machine=machine,
        environment=machine.environment,
        size=machine.size,
        during=(started, ended),
        started_at=started,
        ended_at=ended,
        cause=cause.value,
        end_cause="" if ended is None else end_cause.value,
    )
    if ended is not None:
        milliseconds = (ended - started) // dt.timedelta(milliseconds=1)
        rate = rate_micros_per_s(machine.size)
        Entry.objects.create(
            app=machine.environment.app,
            session=session,
            size=machine.size,
            milliseconds=milliseconds,
            rate_micros_per_s=rate,
            amount_micros=charge_micros(milliseconds, rate),
        )
    return session
