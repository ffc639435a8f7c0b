"""One machine: its spec, its record, its VMM, and the one lock (`turn`) under which it changes state.

Verbs are safe to call at any time and in any order. `wake` is single flight: however many ask, one start runs, and it
goes on when those who asked have given up. The gate is open exactly while the machine is `running` and the guest has
met its contract; it closes in the same step in which the decision to sleep is final, so no byte falls between.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from dataclasses import replace

import structlog

from hosts.agent import sleeps, starts
from hosts.agent.history import History
from hosts.agent.idle import Activity
from hosts.agent.logs import LogRing
from hosts.agent.parts import BaseImage, Guest, Namespace, Parts
from hosts.agent.record import MachineFiles, MachineRecord
from hosts.agent.shape import Shape
from hosts.agent.starts import Gone, StartFailed
from hosts.agent.trace import Asked, Tracer
from hosts.disk.space import usage_bytes
from hosts.guest.client import AGENT_PORT
from hosts.guest.contract import RESPONDER_PORT
from hosts.net.network import NetworkError
from hosts.snapshots.files import Identity, SnapshotFiles
from hosts.vmm.protocol import Vm, VmConfig, VmmError
from hosts.wire.commands import Failure, MachineReport, SleepDepth, StartReport
from hosts.wire.events import Cause, EndCause
from hosts.wire.spec import MachineSpec, Policy
from hosts.wire.states import ASLEEP, MachineEvent, MachineState
from tunnel.tasks import spawn

log = structlog.get_logger(__name__)

BUSY_GRACE_S = 1.0  # an edge's word that a request has ended may be a moment behind the client's
LET_GO_S = 5.0  # a resume under way when the agent ends may take
IN_BETWEEN = frozenset({MachineState.BOOTING, MachineState.RESUMING})


class Busy(Exception):  # noqa: N818 - reads as the fact it states
    """Requests are in flight."""


class NotRunning(Exception):  # noqa: N818 - reads as the fact it states
    """There is no memory to put to sleep or to copy."""


class Machine:
    """A microVM with a lasting identity."""

    def __init__(self, spec: MachineSpec, record: MachineRecord, parts: Parts) -> None:
        self.spec = spec
        self.parts = parts
        self.files = MachineFiles(parts.machines, spec.machine_id)
        self.shape = Shape(spec, self.files, parts)
        self.snapshot = self.shape.snapshot
        self.history = History(
            spec.machine_id, record, files=self.files, journal=parts.journal, scribe=parts.scribe, clock=parts.clock
        )
        self.traces = Tracer(self.history, parts.clock)
        self.activity = Activity(parts.clock)
        self.turn = asyncio.Lock()
        self.vm: Vm | None = None
        self.gate_open = False
        self.phase = ""  # what a start is doing right now, for those who wait for it
        self.suspend_not_before = 0.0
        self.host_faults = 0  # wakes in a row the host could not do, though nothing is wrong with the memory
        self.resume_not_before = 0.0  # monotonic; requests do not try again before
        self.guest: Guest = parts.guest(self._open_agent, self._open_responder)
        self.logs = LogRing()
        self._namespace: Namespace | None = None
        self._flight: asyncio.Future[None] | None = None
        self._flight_task: asyncio.Task[None] | None = None
        self._hashing: asyncio.Task[None] | None = None
        # Sockets to the present guest. Whoever was given one owns it; here it is only remembered, to be cut.
        self._streams: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._doomed = False
        self._removed = False

    # -- verbs

    async def wake(self, cause: Cause, *, deadline_s: float, asked: Asked | None = None) -> None:
        """Return once the gate is open. StartFailed, Gone or TimeoutError; after a time-out the start goes on."""
        if self.gate_open:
            return
        if self._doomed:
            raise Gone
        flight = self.start_soon(cause)
        self.traces.join(flight, cause, asked)
        async with asyncio.timeout(deadline_s):
            await asyncio.shield(flight)

    def start_soon(self, cause: Cause) -> asyncio.Future[None]:
        """The start under way, or a new one; nobody need wait for it."""
        flight = self._flight
        if flight is None:
            flight = self._flight = asyncio.get_running_loop().create_future()
            flight.add_done_callback(_retrieve)
            self._flight_task = spawn(self._fly(cause, flight), name=f"wake-{self.spec.machine_id}")
        return flight

    @property
    def waking(self) -> bool:
        """Whether someone waits for a start: what is being put to sleep need not sleep deeper."""
        return self._flight is not None

    async def sleep(self, to: SleepDepth) -> None:
        """Asleep at least that deep when it returns. Busy while something is in flight, NotRunning without memory."""
        await self._wait_until_quiet()
        await sleeps.pause(self, EndCause.API, only_if=lambda: not self.activity.in_flight)
        if self.history.state is MachineState.RUNNING:
            raise Busy
        if to is SleepDepth.SUSPENDED:
            await sleeps.suspend(self)
        if self.history.state not in ASLEEP:
            raise Busy if self.history.state in IN_BETWEEN | {MachineState.RUNNING} else NotRunning

    async def pause_if_idle(self) -> None:
        """The idle period is over, unless something came in between."""
        await sleeps.pause(self, EndCause.IDLE, only_if=self._is_idle)

    async def suspend_if_asleep(self) -> None:
        """Paused for long enough, unless something came in between."""
        with contextlib.suppress(sleeps.SuspendFailed):
            await sleeps.suspend(self)

    async def checkpoint(self) -> None:
        """Keep a copy of this instant; the machine goes on."""
        await sleeps.checkpoint(self)

    async def set_policy(self, policy: Policy) -> None:
        """Change when it sleeps and what it reaches: at once, in whatever state."""
        async with self.turn:
            old = self.spec.policy
            changed = (policy.egress, policy.egress_allow) != (old.egress, old.egress_allow)
            if changed and self._namespace is not None:
                await self.parts.network.set_egress(self.history.record.slot, policy.egress, policy.egress_allow)
            spec = replace(self.spec, policy=policy)
            await self.parts.scribe.run(self.files.save_spec, spec)
            self.spec = spec

    async def destroy(self) -> None:
        """Nothing of the machine is left when it returns."""
        self._doomed = True
        self.gate_open = False
        if self._flight_task is not None:
            self._flight_task.cancel()
        async with self.turn:
            if self.history.state is not MachineState.DESTROYED:
                await self.stop_hashing()
                await self.drop_vm(EndCause.RETIRED)
                self.history.become(MachineEvent.DESTROY)
                await self.history.commit()
            if not self._removed:  # once only: the slot is another machine's soon after
                await self.parts.network.remove(self.history.record.slot)
                await self.parts.scribe.run(self.files.remove)
                self._removed = True

    async def report(self, *, wait_s: float = 0) -> MachineReport:
        """What GET answers; waits until the machine is neither booting nor resuming."""
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.history.wait_until(lambda: self._shown_state() not in IN_BETWEEN)
        record = self.history.record
        return MachineReport(
            machine_id=self.spec.machine_id,
            state=self._shown_state(),
            since_ms=record.since_ms,
            release=self.spec.release,
            failure=record.failure,
            port=record.port,
            listening=record.listening,
            log_tail=record.log_tail or self.logs.tail(),
            in_flight=self.activity.in_flight,
            checkpoint=self.parts.snapshots.has_checkpoint(self.snapshot),
            last_start=record.last_start,
            disk_bytes=await self.parts.scribe.run(usage_bytes, self.files.folder),
        )

    def _shown_state(self) -> MachineState:
        """A start that was asked for and has not begun yet is booting already, or who asked would think it over."""
        state = self.history.state
        return MachineState.BOOTING if self.waking and state is MachineState.STOPPED else state

    async def connect(self, timeout_s: float) -> socket.socket:
        """A connection to the app. It may have moved since it was found, so a refusal asks the guest where it is."""
        namespace = await self.network()
        try:
            sock = await namespace.connect(self._served_port(), timeout_s)
        except ConnectionRefusedError:
            status = await self.guest.status()
            if status.port is None:
                raise
            if status.port != self.history.record.port:
                self.history.change(port=status.port, listening=status.listening)
            sock = await namespace.connect(status.port, timeout_s)
        self._streams.add(sock)
        return sock

    # -- what starts, sleeps and recovery build on (all under `turn`)

    def attach(self, vm: Vm) -> None:
        """This VMM runs the machine from now on."""
        self.vm = vm
        self.history.change(process=vm.record)
        spawn(self._watch(vm), name=f"vm-{self.spec.machine_id}")

    async def note_process(self, vm: Vm) -> None:
        """Make the process findable before its snapshot is spent: from then on it alone has the memory."""
        self.history.change(process=vm.record)
        await self.history.commit()

    async def ready(self, report: StartReport) -> None:
        """The guest answered: open the gate, and only then spend time on saying so."""
        self.history.become(
            MachineEvent.READY,
            last_start=report,
            failure=None,
            failed_starts=0,
            retry_at_ms=0,
            proven=True,
            memory_lost="",
            log_tail=(),
        )
        self.phase = ""
        self.host_faults, self.resume_not_before = 0, 0.0
        self.activity.touch()
        self.gate_open = True
        if self._flight is not None and not self._flight.done():
            self._flight.set_result(None)
        await self.history.commit()

    async def drop_vm(self, end_cause: EndCause) -> None:
        """End the VMM, if there is one, and the session with it."""
        vm, self.vm = self.vm, None
        self.gate_open = False
        if vm is not None:
            try:
                await vm.kill()
            except VmmError as e:  # it will go; until then nothing can be started on its memory
                log.error("machine.vmm_stays", machine=self.spec.machine_id, error=str(e))
            vm.close()
        self._cut_streams()
        self.history.close_session(end_cause)
        self.history.change(process=None)

    async def lose_memory(self, reason: str) -> None:
        """The memory is not to be gone on with: the next start is a cold boot and says why."""
        await self.drop_vm(EndCause.CRASH)
        self.history.become(MachineEvent.CRASH, code="memory:lost", detail=reason, memory_lost=reason)
        await self.parts.snapshots.spend(self.snapshot)
        log.warning("machine.memory_lost", machine=self.spec.machine_id, reason=reason)
        await self.history.commit()

    async def crashed(self, vm: Vm, reason: str) -> None:
        """`vm` ended or does not answer; nothing happens if it is not this machine's any more."""
        async with self.turn:
            if self.vm is vm:
                await self.lose_memory(reason)

    async def network(self) -> Namespace:
        """The machine's namespace, made if it is not there."""
        if self._namespace is None:
            slot, policy = self.history.record.slot, self.spec.policy
            self._namespace = await self.parts.network.ensure(
                slot, policy.egress, self.parts.uid_of(slot), policy.egress_allow
            )
        return self._namespace

    def base_image(self) -> BaseImage:
        """The base image of its memory, or of its next boot; ImageMissing."""
        return self.shape.base_image(self.history.record.base)

    def vm_config(self, namespace: Namespace) -> VmConfig:
        """The VMM's configuration; ImageMissing."""
        return self.shape.vm_config(namespace.name, base=self.base_image(), slot=self.history.record.slot)

    def vm_config_unseen(self) -> VmConfig:
        """The same, whether its namespace can be made just now or not; ImageMissing."""
        slot = self.history.record.slot
        return self.shape.vm_config(self.parts.network.name_of(slot), base=self.base_image(), slot=slot)

    def identity(self, config: VmConfig) -> Identity:
        """What a snapshot of it must have been taken with; ImageMissing."""
        return self.shape.identity(config, base=self.base_image().digest)

    def start_hashing(self, files: SnapshotFiles) -> None:
        """Hash a memory file in the background: a snapshot without it does not outlive a reboot of the host."""
        self._hashing = spawn(self.parts.snapshots.record_memory_hash(files), name=f"hash-{self.spec.machine_id}")

    async def stop_hashing(self) -> None:
        """Stop that; the memory is about to change."""
        hashing, self._hashing = self._hashing, None
        if hashing is not None:
            hashing.cancel()
            await asyncio.wait([hashing])

    async def log_tail(self) -> tuple[str, ...]:
        """The app's last lines, freshly read if the guest answers."""
        await self.logs.pull(self.guest)
        return self.logs.tail()

    async def let_go(self) -> None:
        """The agent ends; the machine goes on. A resume is not cut off, for the pair may be spent already."""
        if self._flight_task is not None and self.history.state is MachineState.RESUMING:
            await asyncio.wait([self._flight_task], timeout=LET_GO_S)
        await self.traces.flush()
        if self.vm is not None:
            self.vm.close()

    # -- inside

    async def _fly(self, cause: Cause, flight: asyncio.Future[None]) -> None:
        try:
            async with self.turn:
                await starts.start(self, cause)
            if not flight.done():  # it was running already
                flight.set_result(None)
        except (StartFailed, Gone) as e:
            flight.set_exception(e)
        except asyncio.CancelledError:
            if not flight.done():
                flight.set_exception(Gone())
            raise
        except Exception as e:
            # A bug of ours must neither hang those who wait nor leave the machine half-way for ever.
            await self._recover_from_bug(e)
            if not flight.done():
                flight.set_exception(
                    StartFailed(Failure("host:bug", self.phase, "the host agent failed while starting the machine"))
                )
            raise
        finally:
            self._flight = None
            self.history.change()  # whoever waits for the end of a start looks again

    async def _recover_from_bug(self, error: Exception) -> None:
        async with self.turn:
            if self.history.state in IN_BETWEEN:
                await self.lose_memory(f"the host agent failed in phase {self.phase}: {error!r}")

    async def _watch(self, vm: Vm) -> None:
        await vm.exited.wait()
        await self.crashed(vm, "its VMM ended unasked")

    async def _wait_until_quiet(self) -> None:
        clock = self.parts.clock
        until = clock.monotonic() + BUSY_GRACE_S
        while self.activity.in_flight:
            if clock.monotonic() >= until:
                raise Busy
            await clock.sleep(0.01)

    def _cut_streams(self) -> None:
        """What was said to a guest that is gone will never be answered: better an end at once than a long silence."""
        for sock in list(self._streams):
            with contextlib.suppress(OSError):  # closed by its owner meanwhile
                sock.shutdown(socket.SHUT_RDWR)
        self._streams.clear()

    def _is_idle(self) -> bool:
        quiet_s = self.parts.clock.monotonic() - self.activity.last_at
        return not self.activity.in_flight and quiet_s >= self.spec.policy.idle_period_s

    def _served_port(self) -> int:
        return self.history.record.port or self.spec.process.port

    async def _open_agent(self, timeout_s: float) -> socket.socket:
        return await (await self._reachable()).connect(AGENT_PORT, timeout_s)

    async def _open_responder(self, timeout_s: float) -> socket.socket:
        return await (await self._reachable()).datagrams(RESPONDER_PORT, timeout_s)

    async def _reachable(self) -> Namespace:
        try:
            return await self.network()
        except NetworkError as e:  # to the guest's client one kind of "cannot be reached" is as good as another
            raise OSError(str(e)) from None


def _retrieve(flight: asyncio.Future[None]) -> None:
    """Those who waited have been told, or have gone; asyncio need not warn about the rest."""
    if not flight.cancelled():
        flight.exception()
