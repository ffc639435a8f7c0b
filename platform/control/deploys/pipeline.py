"""From queued to live: what a worker does with a deploy, one phase after the other.

A worker may die at any line. Each phase first looks at what is there and only then acts, hosts take the same command
twice, and every change of the row is a compare-and-set under the worker's lease. So going on, starting over and two
workers at once come to the same end. No transaction is open while a host is asked.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from django.db import transaction

from control import clock, log
from control.builds import services as builds
from control.builds.models import Build
from control.builds.states import BuildState
from control.deploys import journal, services
from control.deploys.lease import Lease, LeaseLost, take
from control.deploys.models import Deploy
from control.deploys.states import DeployEvent, Outcome, Phase, after
from control.errors import RetryLater
from control.hostapi import HostRefused
from control.machines import services as machines
from control.machines.models import Machine
from control.machines.states import Lifecycle
from control.releases import services as releases
from control.routes import queries as routes
from control.routes import services as route_services
from hosts.wire.commands import MachineReport
from hosts.wire.states import ASLEEP, MachineState

logger = log.get(__name__)

SLICE_S = 45.0  # a task takes so long at most, then hands on: fair between deploys, and quick to stop
BUILD_WAIT_S = 5
BUILD_PAUSE_S = 0.2  # lines come in bursts: one request for several
BOOT_WAIT_S = 5
BOOT_PAUSE_S = 0.2
SWITCH_PAUSE_S = 0.5
BUILD_DEADLINE = timedelta(
    seconds=builds.BUILD_TIMEOUT_S + 300
)  # the host's own limit, and time to queue and boot the builder
BOOT_DEADLINE = timedelta(seconds=300)
CHECKPOINT_DEADLINE = timedelta(seconds=120)
EDGE_GRACE = timedelta(seconds=20)  # an edge that is away for longer than that does not hold up the others
LOG_TAIL_LINES = 40
UNKNOWN, BUSY = 404, 503  # statuses of a host's answer

AWAKE_ONCE = frozenset({MachineState.RUNNING, MachineState.RESUMING}) | ASLEEP  # its app has answered at least once
GAVE_UP = frozenset({MachineState.FAILED, MachineState.STOPPED, MachineState.DESTROYED})


def work(deploy_id: uuid.UUID, *, stopping: Callable[[], bool] = lambda: False) -> bool:
    """Bring a deploy on for one slice. True if there is more to do at once."""
    lease = take(deploy_id)
    if lease is None:
        return False
    end = time.monotonic() + SLICE_S
    try:
        while time.monotonic() < end and not stopping():
            deploy = _load(deploy_id)
            if deploy.outcome:
                return False
            lease.renew()
            PHASES[Phase(deploy.phase)](deploy, lease)
        return True
    except LeaseLost:
        return False
    except RetryLater as e:
        logger.warning("deploy waits", deploy=deploy_id.hex, error=str(e))
        _give_up_if_late(_load(deploy_id), str(e))
        return False  # the sweep sends it again in a few seconds
    finally:
        lease.release()


def _load(deploy_id: uuid.UUID) -> Deploy:
    return Deploy.objects.select_related(
        "environment__app", "push", "build", "release", "machine__host", "machine__release", "machine__environment__app"
    ).get(id=deploy_id)


# ---- queued


def _queued(deploy: Deploy, lease: Lease) -> None:
    if deploy.build is None:
        live = routes.live_machine(deploy.environment)
        if live is None:
            services.fail(deploy, code="deploy:nothing_live", message="There is no release whose image could be used.")
            return
        _to_boot(deploy, lease, live.release.build)
        return
    if deploy.push is not None:
        journal.append(
            deploy.id,
            [f"Received {deploy.push.commit[:10]} {deploy.push.subject}".rstrip()],
            prefix=journal.HEAD,
        )
    _enter(deploy, lease, DeployEvent.START_BUILD)


# ---- build


def _build(deploy: Deploy, lease: Lease) -> None:
    build = deploy.build
    assert build is not None  # noqa: S101 - a deploy without a build never enters this phase
    state = BuildState(build.state)
    if state is BuildState.SUCCEEDED:
        size_mib = build.image_bytes / (1024 * 1024)
        journal.append(deploy.id, [f"Built a {build.kind} image of {size_mib:.1f} MiB"], prefix=journal.HEAD)
        _to_boot(deploy, lease, build)
    elif state is BuildState.FAILED:
        services.fail(deploy, code=build.code, message=build.message)
    elif state is BuildState.CANCELLED:
        raise LeaseLost  # only an ended deploy's build is cancelled
    elif _late(deploy, BUILD_DEADLINE):
        builds.fail(build=build, code="build:timeout", message="The build did not end in time.")
    else:
        try:
            if state is BuildState.QUEUED:
                builds.send(build=build, host=build.host or machines.choose_host().name, beat=lease.renew)
            else:
                _follow_build(deploy, build)
        except HostRefused as e:
            if e.status == BUSY:
                raise RetryLater(str(e)) from e
            builds.fail(build=build, code=e.code, message=e.message)


def _follow_build(deploy: Deploy, build: Build) -> None:
    report = builds.follow(build=build, wait_s=BUILD_WAIT_S)
    if report is None:
        return
    if report.phase.value != build.phase:
        Build.objects.filter(id=build.id).update(phase=report.phase.value)
        journal.step(deploy.id, f"build.{report.phase.value}")
    if not journal.append_build(deploy.id, build, report.lines, report.next):
        return
    if report.outcome is not None and not report.lines:  # all of its log has been read
        builds.settle(build=build, report=report)
    elif report.outcome is None:
        time.sleep(BUILD_PAUSE_S)


def _to_boot(deploy: Deploy, lease: Lease, build: Build) -> None:
    """Release, machine and phase in one transaction: either all of them exist or none."""
    with transaction.atomic():
        environment = services.hold(deploy.environment)
        release = releases.create(environment=environment, build=build)
        machine = machines.declare(environment=environment, release=release)
        new = after(Phase(deploy.phase), DeployEvent.BUILT)
        lease.change(Phase(deploy.phase), phase=new.value, phase_since=clock.now(), release=release, machine=machine)
        journal.step(deploy.id, new.value)
    starting = f"Starting release {release.number} in a machine of its own; the app has two minutes to listen"
    journal.append(deploy.id, [starting], prefix=journal.HEAD)


# ---- boot


def _boot(deploy: Deploy, lease: Lease) -> None:
    machine = _machine(deploy)
    if not machine.policy_sent:
        report = _told(deploy, lambda: machines.start(machine=machine))
    else:
        report = _told(deploy, lambda: machines.look(machine=machine, wait_s=BOOT_WAIT_S))
    if report is None:
        return
    if report.state in AWAKE_ONCE:
        seconds = (clock.now() - deploy.phase_since).total_seconds()
        where = f" on port {report.port}" if report.port else ""
        journal.append(deploy.id, [f"The app answers{where} after {seconds:.1f} s"], prefix=journal.HEAD)
        _enter(deploy, lease, DeployEvent.RUNNING)
    elif report.state is MachineState.STOPPED and report.last_start is None and report.failure is None:
        time.sleep(BOOT_PAUSE_S)  # it has not begun to boot yet: nothing to hold against it
        if _late(deploy, BOOT_DEADLINE):
            _fail_boot(deploy, report, code="boot:timeout", message="The machine did not begin to boot.")
    elif report.state in GAVE_UP:
        _fail_boot(deploy, report)
    elif _late(deploy, BOOT_DEADLINE):
        _fail_boot(deploy, report, code="boot:timeout", message="The machine did not get ready in time.")


def _fail_boot(
    deploy: Deploy, report: MachineReport, *, code: str = "boot:stopped", message: str = "The machine stopped."
) -> None:
    if report.failure is not None:
        code, message = report.failure.code, report.failure.message
    if report.listening:
        sockets = ", ".join(f"{s.address}:{s.port}" for s in report.listening)
        journal.append(deploy.id, [f"What is listening: {sockets}"])
    if report.log_tail:
        journal.append(deploy.id, ["The app's last lines:", *report.log_tail[-LOG_TAIL_LINES:]])
    services.fail(deploy, code=code, message=message)


# ---- checkpoint


def _checkpoint(deploy: Deploy, lease: Lease) -> None:
    """A checkpoint makes later starts quick; a deploy whose app runs is not given up for want of one."""
    try:
        machines.checkpoint(machine=_machine(deploy))
    except HostRefused as e:
        if not _stands(deploy):
            return
        journal.append(deploy.id, [f"No checkpoint was kept ({e.code}); the app starts afresh after a crash."])
    except RetryLater:
        if not _late(deploy, CHECKPOINT_DEADLINE):
            raise
        if not _stands(deploy):
            return
        journal.append(deploy.id, ["No checkpoint was kept: its host did not answer in time."])
    with transaction.atomic():
        # The route changes in the same instant in which this deploy passes the point of no return.
        services.hold(deploy.environment)
        _enter(deploy, lease, DeployEvent.CHECKPOINTED)
        route_services.switch(environment=deploy.environment, machine=_machine(deploy))


def _stands(deploy: Deploy) -> bool:
    """Whether the machine outlived a checkpoint that was not kept; False once the deploy is failed because it did not.

    RetryLater while that cannot be told: no route is ever switched to a machine that may be gone.
    """
    try:
        report = machines.look(machine=_machine(deploy), wait_s=BOOT_WAIT_S)
    except HostRefused as e:
        if e.status == BUSY:
            raise RetryLater(str(e)) from e
        services.fail(deploy, code=e.code, message=e.message)
        return False
    if report.state in AWAKE_ONCE:
        return True
    if report.state in GAVE_UP:
        _fail_boot(deploy, report)
    elif _late(deploy, CHECKPOINT_DEADLINE):
        _fail_boot(deploy, report, code="boot:timeout", message="The machine did not come back after its checkpoint.")
    else:
        raise RetryLater(f"the machine is {report.state} after a checkpoint that was not kept")
    return False


# ---- switch


def _switch(deploy: Deploy, lease: Lease) -> None:
    generation, _ = route_services.read_table()
    found = route_services.publish()
    told = [g >= generation for g in found.values()]
    waiting = clock.now() - deploy.phase_since < EDGE_GRACE and len(found) < route_services.edges()
    if not told or not all(told) or waiting:
        lease.renew()
        time.sleep(SWITCH_PAUSE_S)
        if not told:
            raise RetryLater("no edge can be told the new route")
        return
    with transaction.atomic():
        now = clock.now()
        lease.change(
            Phase.SWITCH,
            phase=after(Phase.SWITCH, DeployEvent.SWITCHED).value,
            phase_since=now,
            outcome=Outcome.SUCCEEDED.value,
            finished_at=now,
            lease=None,
            lease_until=None,
        )
        journal.step(deploy.id, Phase.LIVE.value)
        journal.append(deploy.id, [f"Live: {deploy.environment.url}"], prefix=journal.HEAD)
        others = Machine.objects.filter(environment=deploy.environment, lifecycle=Lifecycle.WANTED.value)
        for old in others.exclude(id=_machine(deploy).id):
            machines.retire(machine=old)
        services.tidy_later(deploy)


# ---- shared


def _enter(deploy: Deploy, lease: Lease, event: DeployEvent) -> None:
    new = after(Phase(deploy.phase), event)
    with transaction.atomic():
        lease.change(Phase(deploy.phase), phase=new.value, phase_since=clock.now())
        journal.step(deploy.id, new.value)


def _machine(deploy: Deploy) -> Machine:
    assert deploy.machine is not None  # noqa: S101 - set in the transaction that entered `boot`
    return deploy.machine


def _told(deploy: Deploy, ask: Callable[[], MachineReport]) -> MachineReport | None:
    """The host's answer; a refusal that is final fails the deploy and gives None."""
    try:
        return ask()
    except HostRefused as e:
        if e.status in (UNKNOWN, BUSY) and e.code != "image:unknown":
            # Unknown: the host lost the machine, which is sent again at the next turn.
            Machine.objects.filter(id=_machine(deploy).id).update(policy_sent="")
            if not _late(deploy, BOOT_DEADLINE):
                raise RetryLater(str(e)) from e
        services.fail(deploy, code=e.code, message=e.message)
        return None


def _late(deploy: Deploy, deadline: timedelta) -> bool:
    return clock.now() - deploy.phase_since > deadline


DEADLINES = {
    Phase.QUEUED: BUILD_DEADLINE,
    Phase.BUILD: BUILD_DEADLINE,
    Phase.BOOT: BOOT_DEADLINE,
    Phase.CHECKPOINT: CHECKPOINT_DEADLINE,
}
STALLED_GRACE = timedelta(seconds=60)


def give_up_stalled(deploy: Deploy) -> bool:
    """End a deploy that is far past its phase's deadline, whatever kept its workers from saying so."""
    deadline = DEADLINES.get(Phase(deploy.phase))
    if deadline is None or not _late(deploy, deadline + STALLED_GRACE):
        return False
    return services.fail(deploy, code="deploy:stalled", message=f"The deploy did not get past {deploy.phase} in time.")


def _give_up_if_late(deploy: Deploy, why: str) -> None:
    deadline = DEADLINES.get(Phase(deploy.phase))
    if deadline is not None and not deploy.outcome and _late(deploy, deadline):
        services.fail(deploy, code="host:unreachable", message=f"The host could not be reached in time ({why}).")


PHASES: dict[Phase, Callable[[Deploy, Lease], None]] = {
    Phase.QUEUED: _queued,
    Phase.BUILD: _build,
    Phase.BOOT: _boot,
    Phase.CHECKPOINT: _checkpoint,
    Phase.SWITCH: _switch,
}
