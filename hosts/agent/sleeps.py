"""How a machine comes to rest: paused, suspended, and the short stop of a checkpoint.

The file systems are flushed while the guest still runs, so that a memory that is lost later costs no finished write.
Whoever wants the machine meanwhile is asked at the last instant: before the vCPUs stop sleeping can be called off,
after that it is over in milliseconds and the wake follows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from hosts.agent import starts
from hosts.agent.shape import ImageMissing
from hosts.guest.client import GuestError
from hosts.net.network import NetworkError
from hosts.snapshots.files import SnapshotFailed
from hosts.vmm.protocol import VmmError
from hosts.wire.events import Cause, EndCause
from hosts.wire.states import MachineEvent, MachineState

if TYPE_CHECKING:
    from hosts.agent.machine import Machine

log = structlog.get_logger(__name__)

SYNC_TIMEOUT_S = 5.0  # flushing a guest's file systems before it sleeps
SUSPEND_RETRY_S = 60.0  # after a suspend that failed


class SuspendFailed(Exception):  # noqa: N818 - reads as the fact it states
    """The state could not be written; the machine is paused and whole."""


class CheckpointFailed(Exception):  # noqa: N818 - reads as the fact it states
    """No checkpoint was taken; the machine goes on, or its state says why not."""


async def pause(machine: Machine, end_cause: EndCause, *, only_if: Callable[[], bool]) -> None:
    """Stop the vCPUs of a running machine, if `only_if` still says so at the last instant."""
    async with machine.turn:
        if machine.history.state is not MachineState.RUNNING or not only_if():
            return
        await _flush(machine)
        # No await between the last look and the closed gate: a byte that came is seen here, one that comes later is
        # held.
        if machine.history.state is MachineState.RUNNING and only_if():
            await _stop(machine, end_cause)


async def suspend(machine: Machine) -> None:
    """Write a paused machine's device state and end its process. Returns at once if someone wants the machine."""
    async with machine.parts.limits.suspends, machine.turn:
        vm = machine.vm
        if machine.history.state is not MachineState.PAUSED or vm is None or machine.waking:
            return
        parts = machine.parts
        try:
            config = machine.vm_config(await machine.network())
            identity = machine.identity(config)
        except (ImageMissing, NetworkError) as e:  # what it runs on has been taken away: it may only stay as it is
            machine.suspend_not_before = parts.clock.monotonic() + SUSPEND_RETRY_S
            raise SuspendFailed(str(e)) from None
        machine.history.become(MachineEvent.SUSPEND)
        try:
            manifest = await parts.snapshots.suspend(vm, machine.snapshot, identity, now_ms=parts.clock.wall_ms())
        except SnapshotFailed as e:
            machine.suspend_not_before = parts.clock.monotonic() + SUSPEND_RETRY_S
            machine.history.become(MachineEvent.SAVE_FAILED, code="suspend:failed", detail=str(e))
            await machine.history.commit()
            log.error("machine.suspend_failed", machine=machine.spec.machine_id, error=str(e))
            raise SuspendFailed(str(e)) from None
        machine.vm = None
        vm.close()
        machine.history.become(MachineEvent.SAVED, process=None, generation=manifest.generation)
        await machine.history.commit()
        machine.start_hashing(machine.snapshot)


async def checkpoint(machine: Machine) -> None:
    """Keep a copy of this instant. A running machine stops while its files are cloned; a paused one stays so."""
    async with machine.turn:
        was_running = machine.history.state is MachineState.RUNNING
        if was_running:
            # Of all it read while it started little is read again; what is, stays in memory over all later sleeps.
            await _flush(machine, drop_caches=True)
            await _stop(machine, EndCause.CHECKPOINT)
        vm = machine.vm
        if machine.history.state is not MachineState.PAUSED or vm is None:
            raise CheckpointFailed(f"a machine that is {machine.history.state} has no memory to copy")
        parts = machine.parts

        async def go_on() -> None:
            if was_running and machine.history.state is MachineState.PAUSED:
                await starts.start(machine, Cause.CHECKPOINT)

        try:
            try:
                config = machine.vm_config(await machine.network())
                # It runs again as soon as its files are cloned; making the clones durable takes longer.
                await parts.snapshots.checkpoint(
                    vm, machine.snapshot, machine.identity(config), now_ms=parts.clock.wall_ms(), cloned=go_on
                )
            finally:
                await go_on()
        except (SnapshotFailed, ImageMissing, NetworkError) as e:
            raise CheckpointFailed(str(e)) from None
        except starts.StartFailed as e:
            raise CheckpointFailed(f"the machine did not go on: {e}") from None
        machine.start_hashing(machine.snapshot.checkpoint)


async def _flush(machine: Machine, *, drop_caches: bool = False) -> None:
    try:
        await machine.guest.sync(SYNC_TIMEOUT_S, drop_caches=drop_caches)
    except GuestError as e:
        log.warning("machine.sync_failed", machine=machine.spec.machine_id, error=str(e))
    await machine.logs.pull(machine.guest)


async def _stop(machine: Machine, end_cause: EndCause) -> None:
    vm = machine.vm
    machine.gate_open = False
    try:
        if vm is None:
            raise VmmError("no process")
        await vm.pause()
    except VmmError as e:
        await machine.lose_memory(f"the VMM did not stop when asked: {e}")
        return
    machine.history.close_session(end_cause)
    machine.history.become(MachineEvent.PAUSE)
    await machine.history.commit()
