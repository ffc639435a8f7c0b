"""How a machine comes to run: from paused, from suspended, or by a cold boot when there is no memory to go on with.

Every function here runs under the machine's turn (its lock). Memory that cannot be trusted - a dead VMM, a refused
snapshot, a guest that does not meet the resume contract - is given up for a cold boot from release and writable disk,
and the report says why. The gate opens only after the guest itself answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from hosts.agent import health
from hosts.agent.alive import VmLost, while_alive
from hosts.agent.budget import HostMemoryFull
from hosts.agent.clock import backoff_s
from hosts.agent.shape import ImageMissing
from hosts.guest.client import GuestError, Listening, NotListening
from hosts.net.addresses import GATEWAY_ADDRESS
from hosts.net.network import NetworkError
from hosts.snapshots.files import SnapshotRefused
from hosts.vmm.protocol import Vm, VmmError
from hosts.wire.commands import Failure, Start, StartReport, Step
from hosts.wire.events import Cause, EndCause
from hosts.wire.states import MachineEvent, MachineState

if TYPE_CHECKING:
    from hosts.agent.machine import Machine

log = structlog.get_logger(__name__)

HELLO_TIMEOUT_S = 120.0  # a guest's boot; 1.5 s on an idle host under TCG, 30 s on one with a load of eight
START_TIMEOUT_S = 30.0  # the guest agent takes to start the app's process
LISTEN_TIMEOUT_S = 120.0  # the app takes to listen on a port
HEALTH_TIMEOUT_S = 60.0  # and then to answer a request
RESUME_TIMEOUT_S = 30.0  # a resume; milliseconds where nothing else goes on; giving up costs the guest its memory
ENTROPY_BYTES = 32

MAX_FAILED_STARTS = 3  # in a row, of a machine that once worked: it is `failed`
HOST_FULL = "host:full"
RETRY_FIRST_S = 1.0  # after a failed start; doubled each time
RETRY_CAP_S = 60.0  # and no longer than this
RETRY_WAIT_S = 3.0  # a request waits for the back-off if no more than this is left of it


class StartFailed(Exception):  # noqa: N818 - reads as the fact it states
    """The machine does not run; `failure` says in which phase and why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Gone(Exception):  # noqa: N818 - reads as the fact it states
    """The machine is being destroyed."""


class _MemoryLost(Exception):  # noqa: N818 - caught in `start`
    """The memory cannot be gone on with."""


class _BootFailed(Exception):  # noqa: N818 - caught in `cold_boot`
    def __init__(self, failure: Failure, not_listening: NotListening | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.not_listening = not_listening


class Progress:
    """The steps of one start as they are taken."""

    def __init__(self, machine: Machine, start: Start, cause: Cause, reason: str) -> None:
        self._machine = machine
        self._clock = machine.parts.clock
        self._start, self._cause, self._reason = start, cause, reason
        self._at_ms = self._clock.wall_ms()
        self._steps: list[Step] = []
        machine.traces.began(self)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; the machine's phase bears its name meanwhile."""
        self._machine.phase = name
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._steps.append(Step(name, round((self._clock.monotonic() - began) * 1000, 2)))

    def add(self, steps: tuple[Step, ...]) -> None:
        """Steps the guest took."""
        self._steps.extend(steps)

    def report(self) -> StartReport:
        """All of it."""
        return StartReport(self._start, self._cause, self._reason, self._at_ms, tuple(self._steps))


async def start(machine: Machine, cause: Cause) -> None:
    """Bring the machine to `running` from wherever it is, or StartFailed / Gone."""
    match machine.history.state:
        case MachineState.RUNNING:
            return
        case MachineState.DESTROYED:
            raise Gone
        case MachineState.PAUSED | MachineState.SUSPENDED as asleep:
            await _respect_host_fault(machine, cause)
            try:
                await (
                    resume_paused(machine, cause) if asleep is MachineState.PAUSED else resume_suspended(machine, cause)
                )
            except _MemoryLost as e:
                await machine.lose_memory(str(e))
            else:
                return
    await cold_boot(machine, cause)


async def resume_paused(machine: Machine, cause: Cause) -> None:
    """The vCPUs of a process that was kept run on."""
    progress = Progress(machine, Start.RESUME, cause, "")
    try:
        await machine.network()  # at hand, but after a restart of the agent
    except NetworkError as e:  # the guest could not be told that it runs: better it stays as it is
        raise _host_fault(machine, e) from None
    machine.history.become(MachineEvent.RESUME)
    vm = machine.vm
    if vm is None:
        raise _MemoryLost("the paused VMM is gone")
    await _run_on(machine, vm, cause, progress)


async def resume_suspended(machine: Machine, cause: Cause) -> None:
    """A new process on the kept memory file."""
    progress = Progress(machine, Start.RESUME, cause, "")
    machine.history.become(MachineEvent.RESUME)
    try:
        with progress.step("network"):
            namespace = await machine.network()
        with progress.step("load"):
            await machine.stop_hashing()
            config = machine.vm_config(namespace)
            vm = await machine.parts.snapshots.resume(
                machine.parts.vmm, config, machine.snapshot, machine.identity(config), loaded=machine.note_process
            )
    except SnapshotRefused as e:
        raise _MemoryLost(f"the snapshot was refused: {e} ({e.reason})") from None
    except ImageMissing as e:
        raise _MemoryLost(f"the snapshot cannot be loaded: {e}") from None
    except (VmmError, NetworkError, OSError) as e:
        # Nothing is wrong with the snapshot: whoever asks next finds it as it was.
        machine.history.become(MachineEvent.RESUME_FAILED, code="resume:host", detail=str(e), process=None)
        await machine.history.commit()
        raise _host_fault(machine, e) from None
    machine.attach(vm)
    await _run_on(machine, vm, cause, progress)


async def _respect_host_fault(machine: Machine, cause: Cause) -> None:
    """A fault that lasts is not met anew by every request."""
    clock = machine.parts.clock
    left_s = machine.resume_not_before - clock.monotonic()
    if cause is not Cause.REQUEST or left_s <= 0:
        return
    machine.phase = "backoff"
    if left_s > RETRY_WAIT_S:
        message = f"the host could not start the machine; not tried again for {left_s:.0f} s"
        raise StartFailed(Failure("resume:host", machine.phase, message))
    await clock.sleep(left_s)


def _host_fault(machine: Machine, error: Exception) -> StartFailed:
    """Nothing is wrong with the memory; the host cannot just now."""
    clock = machine.parts.clock
    machine.host_faults += 1
    wait_s = clock.jitter(backoff_s(machine.host_faults, first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S))
    machine.resume_not_before = clock.monotonic() + wait_s
    code = HOST_FULL if isinstance(error, HostMemoryFull) else "resume:host"
    return StartFailed(Failure(code, machine.phase, f"the host could not start the machine just now: {error}"))


async def go_on(machine: Machine, vm: Vm, cause: Cause) -> None:
    """After an agent restart: a guest found running meets the resume contract again, for it may have been missed."""
    progress = Progress(machine, Start.RESUME, cause, "the host agent was restarted")
    if machine.history.state is not MachineState.RESUMING:
        machine.history.find(MachineState.RESUMING)
    try:
        await _run_on(machine, vm, cause, progress)
    except _MemoryLost as e:
        await machine.lose_memory(str(e))


async def _run_on(machine: Machine, vm: Vm, cause: Cause, progress: Progress) -> None:
    try:
        with progress.step("cont"):
            await vm.resume()
        if machine.history.record.session is None:
            machine.history.open_session(cause)
        with progress.step("contract"):
            _, steps = await asyncio.gather(machine.history.commit(), while_alive(vm, lambda: _contract(machine)))
    except VmmError as e:
        raise _MemoryLost(f"the VMM did not let it run on: {e}") from None
    except VmLost:
        raise _MemoryLost("the VMM ended while it was woken") from None
    except GuestError as e:
        raise _MemoryLost(f"the resume contract was not met: {e}") from None
    progress.add(steps)
    await machine.ready(progress.report())


async def _contract(machine: Machine) -> tuple[Step, ...]:
    clock = machine.parts.clock
    return await machine.guest.resume(
        clock_ms=clock.wall_ms, entropy=clock.entropy(ENTROPY_BYTES), timeout_s=RESUME_TIMEOUT_S
    )


async def cold_boot(machine: Machine, cause: Cause) -> None:
    """A kernel start from the release and the writable disk."""
    await _respect_backoff(machine, cause)
    record = machine.history.record
    progress = Progress(machine, Start.COLD_BOOT, cause, record.memory_lost)
    machine.history.become(MachineEvent.BOOT, failure=None, port=None, listening=(), log_tail=())
    try:
        with progress.step("queue"):
            await machine.parts.limits.cold_boots.acquire()
        try:
            vm = await _boot_vm(machine, cause, progress)
            await until_ready(machine, vm, progress)
        finally:
            machine.parts.limits.cold_boots.release()
    except _BootFailed as e:
        await _give_up(machine, e)
        raise StartFailed(e.failure) from None


async def finish_boot(machine: Machine, vm: Vm) -> None:
    """After an agent restart: the process of a boot lives, so go on with the guest's first word."""
    progress = Progress(machine, Start.COLD_BOOT, Cause.ADOPTED, "the host agent was restarted during the boot")
    if machine.history.record.session is None:
        machine.history.open_session(Cause.ADOPTED)
    try:
        await until_ready(machine, vm, progress)
    except _BootFailed as e:
        await _give_up(machine, e)


async def _respect_backoff(machine: Machine, cause: Cause) -> None:
    record = machine.history.record
    left_s = (record.retry_at_ms - machine.parts.clock.wall_ms()) / 1000
    if cause is not Cause.REQUEST or left_s <= 0:
        return
    if left_s > RETRY_WAIT_S:
        failure = record.failure or Failure("boot:backoff", "backoff", "the last start failed")
        raise StartFailed(
            Failure(failure.code, failure.phase, f"{failure.message}; not tried again for {left_s:.0f} s")
        )
    machine.phase = "backoff"
    await machine.parts.clock.sleep(left_s)


async def _boot_vm(machine: Machine, cause: Cause, progress: Progress) -> Vm:
    parts, record = machine.parts, machine.history.record
    try:
        with progress.step("prepare"):
            base = machine.base_image()
            machine.history.change(base=base.digest)
            await machine.stop_hashing()
            # A snapshot of the memory that is about to be replaced must not be found by anyone.
            await parts.snapshots.spend(machine.snapshot)
            _, _, namespace = await asyncio.gather(
                machine.history.commit(), machine.shape.make_disk(record.slot), machine.network()
            )
        with progress.step("vmm"):
            vm = await parts.vmm.boot(machine.vm_config(namespace))
    except ImageMissing as e:
        raise _BootFailed(Failure(e.code, machine.phase, str(e))) from None
    except HostMemoryFull as e:
        raise _BootFailed(Failure(HOST_FULL, machine.phase, str(e))) from None
    except (VmmError, NetworkError, OSError) as e:
        raise _BootFailed(Failure("boot:host", machine.phase, f"the host could not start the machine: {e}")) from None
    machine.attach(vm)
    machine.logs.rebooted()
    machine.history.open_session(cause)
    return vm


async def until_ready(machine: Machine, vm: Vm, progress: Progress) -> None:
    """From running vCPUs to an app that answers, or _BootFailed."""
    try:
        _, listening = await asyncio.gather(
            machine.history.commit(), while_alive(vm, lambda: _start_app(machine, progress))
        )
        with progress.step("health"):
            namespace = await machine.network()
            unhealthy = await while_alive(
                vm,
                lambda: health.check(
                    namespace,
                    listening.port,
                    path=machine.spec.process.health_path,
                    host=f"{machine.spec.app}.localhost",
                    timeout_s=HEALTH_TIMEOUT_S,
                ),
            )
    except VmLost:
        tail = vm.console_tail()[-500:].strip()
        raise _BootFailed(
            Failure("boot:vmm_ended", machine.phase, f"the VMM ended during the boot; console: {tail!r}")
        ) from None
    except GuestError as e:
        code = "boot:timeout" if e.code in {"guest:timeout", "guest:unreachable"} else "boot:guest"
        raise _BootFailed(Failure(code, machine.phase, f"the guest did not get through its start: {e}")) from None
    except (TimeoutError, NetworkError) as e:
        raise _BootFailed(
            Failure("boot:timeout", machine.phase, f"the guest could not be started in time: {e}")
        ) from None
    machine.history.change(port=listening.port, listening=listening.listening)
    if unhealthy is not None:
        raise _BootFailed(Failure("check:unhealthy", "health", f"the app is not healthy: {unhealthy.message}"))
    await machine.ready(progress.report())


async def _start_app(machine: Machine, progress: Progress) -> Listening:
    parts, spec = machine.parts, machine.spec
    with progress.step("kernel"):
        await machine.guest.hello(HELLO_TIMEOUT_S)
    with progress.step("app"):
        await machine.guest.start(
            spec.process,
            hostname=spec.app,
            clock_ms=parts.clock.wall_ms,
            entropy=parts.clock.entropy(ENTROPY_BYTES),
            # The same ones whatever the policy is: it may change while the machine runs, its resolv.conf does not.
            nameservers=(GATEWAY_ADDRESS, *parts.nameservers),
            timeout_s=START_TIMEOUT_S,
        )
    with progress.step("listening"):
        found = await machine.guest.await_listening(LISTEN_TIMEOUT_S)
    if isinstance(found, NotListening):
        raise _BootFailed(Failure(found.code, "listening", found.message), found)
    return found


async def _give_up(machine: Machine, error: _BootFailed) -> None:
    """One start failed. A machine that never worked fails at once: someone waits for the verdict on its release."""
    record = machine.history.record
    full = error.failure.code == HOST_FULL  # which says nothing about the machine
    failures = record.failed_starts + (0 if full else 1)
    clock = machine.parts.clock
    retry_ms = clock.wall_ms() + int(
        clock.jitter(backoff_s(max(1, failures), first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S)) * 1000
    )
    found = error.not_listening
    tail = found.log_tail if found is not None else await machine.log_tail()
    await machine.drop_vm(EndCause.FAILED)
    event = MachineEvent.CRASH if record.proven and failures < MAX_FAILED_STARTS else MachineEvent.FAIL
    machine.history.become(
        event,
        code=error.failure.code,
        detail=error.failure.message,
        failure=error.failure,
        failed_starts=failures,
        retry_at_ms=retry_ms,
        listening=found.listening if found is not None else record.listening,
        log_tail=tail,
    )
    await machine.history.commit()
    log.warning(
        "machine.start_failed", machine=machine.spec.machine_id, code=error.failure.code, message=error.failure.message
    )
