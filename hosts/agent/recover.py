"""What an agent does about the machines of the one before it, which may have died at any line.

Two facts decide, and the record only names the process to look for: does the process live, and is there a snapshot
pair? A pair exists only while vCPUs have not run since it was taken, so: alive and running - it runs on; alive and
stopped - it is paused, and a pair beside it is dropped; dead with a pair - it is suspended; dead without one - its
memory is lost and the next start is a cold boot. Sessions of the dead are closed at the last proof of life.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import structlog

from hosts.agent import starts
from hosts.agent.clock import backoff_s
from hosts.agent.fleet import Slots
from hosts.agent.machine import Machine
from hosts.agent.parts import Parts
from hosts.agent.record import MachineFiles, RecordError, is_machine_id
from hosts.agent.shape import ImageMissing
from hosts.net.network import NetworkError
from hosts.vmm.protocol import Vm, VmmError
from hosts.wire.events import Cause, EndCause
from hosts.wire.spec import MachineId
from hosts.wire.states import MachineState
from tunnel.tasks import spawn

log = structlog.get_logger(__name__)

AT_ONCE = 8  # machines taken over at a time when the agent starts
NETWORK_TRIES = 8  # over half a minute or so: what a busy host refuses now it has a little later
NETWORK_RETRY_FIRST_S = 0.5  # doubled each time
NETWORK_RETRY_CAP_S = 15.0  # and no longer than this
MEMORY_STATES = frozenset(
    {
        MachineState.RUNNING,
        MachineState.PAUSED,
        MachineState.SUSPENDING,
        MachineState.SUSPENDED,
        MachineState.RESUMING,
    }
)


class Next(Enum):
    """What is still to be done for a machine once the agent is up."""

    NOTHING = auto()
    GO_ON = auto()  # its vCPUs run: meet the resume contract again, then open the gate
    FINISH_BOOT = auto()
    BOOT = auto()  # its first boot never came to a verdict, and someone waits for one
    DESTROY = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """A machine and what it needs next."""

    machine: Machine
    next: Next


async def recover(parts: Parts, slots: Slots, *, alive_ms: int) -> list[Found]:
    """Find every machine there is and settle its state on disk. Nothing is started yet."""
    machines = await parts.scribe.run(_load_all, parts, slots)
    turns = asyncio.Semaphore(AT_ONCE)

    async def settled(machine: Machine) -> Found:
        async with turns:
            todo = await _settle(machine, alive_ms)
            await machine.history.commit()
            return Found(machine, todo)

    return list(await asyncio.gather(*(settled(machine) for machine in machines)))


def carry_on(found: list[Found]) -> None:
    """Start what was half-way. Each task takes its machine's turn before anyone else can."""
    for one in found:
        machine = one.machine
        name = f"carry-on-{machine.spec.machine_id}"
        match one.next:
            case Next.GO_ON | Next.FINISH_BOOT:
                spawn(_carry_on(machine, one.next), name=name)
            case Next.BOOT:
                machine.start_soon(Cause.DEPLOY)
            case Next.DESTROY:
                spawn(machine.destroy(), name=name)
            case Next.NOTHING if machine.history.state in MEMORY_STATES:
                spawn(_warm(machine), name=name)


async def _carry_on(machine: Machine, what: Next) -> None:
    async with machine.turn:
        vm = machine.vm
        if vm is None:
            return
        for failures in range(1, NETWORK_TRIES + 1):
            error = await _try_network(machine)
            if error is None:
                break
            if failures == NETWORK_TRIES:
                await machine.lose_memory(f"its network could not be made again: {error}")
                return
            await _wait_after(machine, failures)
        if what is Next.GO_ON:
            await starts.go_on(machine, vm, Cause.ADOPTED)
        else:
            await starts.finish_boot(machine, vm)


async def _warm(machine: Machine) -> None:
    """Have the namespace ready before a request needs it. One that comes meanwhile tries by itself."""
    for failures in range(1, NETWORK_TRIES + 1):
        async with machine.turn:
            if machine.history.state not in MEMORY_STATES or await _try_network(machine) is None:
                return
        await _wait_after(machine, failures)


async def _try_network(machine: Machine) -> NetworkError | None:
    try:
        await machine.network()
    except NetworkError as e:
        log.warning("recover.network", machine=machine.spec.machine_id, error=str(e))
        return e
    return None


async def _wait_after(machine: Machine, failures: int) -> None:
    clock = machine.parts.clock
    await clock.sleep(clock.jitter(backoff_s(failures, first_s=NETWORK_RETRY_FIRST_S, cap_s=NETWORK_RETRY_CAP_S)))


async def _settle(machine: Machine, alive_ms: int) -> Next:
    state = machine.history.state
    log.info("recover.machine", machine=machine.spec.machine_id, recorded=str(state))
    if state is MachineState.DESTROYED:
        return Next.DESTROY
    await machine.parts.scribe.run(machine.parts.snapshots.reclaim, machine.snapshot)
    vm, runs = await _adopt(machine)
    if state is MachineState.BOOTING:
        return _settle_boot(machine, vm, alive_ms)
    if state in MEMORY_STATES:
        return await _settle_memory(machine, vm, alive_ms, runs=runs)
    if vm is not None:  # stopped or failed, yet its process lives: nobody may have it
        machine.vm = vm
        await machine.drop_vm(EndCause.CRASH)
    machine.history.close_session(EndCause.CRASH, at_ms=alive_ms)
    machine.history.change(process=None)
    first_boot_pending = state is MachineState.STOPPED and not machine.history.record.proven
    return Next.BOOT if first_boot_pending else Next.NOTHING


def _settle_boot(machine: Machine, vm: Vm | None, alive_ms: int) -> Next:
    if vm is not None:
        machine.attach(vm)
        return Next.FINISH_BOOT
    machine.history.close_session(EndCause.CRASH, at_ms=alive_ms)
    machine.history.find(
        MachineState.STOPPED, process=None, memory_lost="the host agent and the VMM ended during the boot"
    )
    return Next.NOTHING if machine.history.record.proven else Next.BOOT


async def _settle_memory(machine: Machine, vm: Vm | None, alive_ms: int, *, runs: bool) -> Next:
    parts, history = machine.parts, machine.history
    if vm is None:
        history.close_session(EndCause.CRASH, at_ms=alive_ms)
        if await parts.scribe.run(parts.snapshots.has_pair, machine.snapshot):
            history.find(MachineState.SUSPENDED, process=None)
        else:
            history.find(MachineState.STOPPED, process=None, memory_lost="its VMM ended while the host agent was away")
        return Next.NOTHING
    # Before the vCPUs of this process may ever run again, no snapshot of its memory may be left.
    await parts.snapshots.spend(machine.snapshot)
    machine.attach(vm)
    if runs:
        history.find(MachineState.RESUMING)
        if history.record.session is None:
            history.open_session(Cause.ADOPTED)
        return Next.GO_ON
    history.close_session(EndCause.CRASH, at_ms=alive_ms)
    history.find(MachineState.PAUSED)
    return Next.NOTHING


async def _adopt(machine: Machine) -> tuple[Vm | None, bool]:
    """The process of the record, if it lives and answers, and whether its vCPUs run. It needs no network for that."""
    record = machine.history.record.process
    if record is None:
        return None, False
    try:
        vm = await machine.parts.vmm.adopt(machine.vm_config_unseen(), record)
        if vm is None:
            return None, False
        try:
            return vm, await vm.is_running()
        except VmmError:  # one that does not answer is of no use
            vm.close()
            raise
    except (VmmError, ImageMissing) as e:
        log.warning("recover.not_adopted", machine=machine.spec.machine_id, error=str(e))
        return None, False


def _load_all(parts: Parts, slots: Slots) -> list[Machine]:
    machines = []
    for folder in sorted(parts.machines.iterdir()):
        if not is_machine_id(folder.name):
            continue
        files = MachineFiles(parts.machines, MachineId(folder.name))
        if not files.is_whole():
            files.remove()  # half made or half removed
            continue
        try:
            spec, record = files.load()
            if not slots.claim(record.slot):
                raise RecordError(f"{folder.name}: slot {record.slot} belongs to another machine")
        except RecordError as e:
            _set_aside(folder, e)
            continue
        machines.append(Machine(spec, record, parts))
    return machines


def _set_aside(folder: Path, error: RecordError) -> None:
    """Damaged by something other than a crash of ours: out of the way, but not deleted."""
    aside = folder.with_name(f"damaged-{folder.name}")
    log.error("recover.damaged", folder=str(folder), moved_to=str(aside), error=str(error))
    if not aside.exists():
        folder.rename(aside)
