"""What the tunnel's streams meet on this host: machines that wake when bytes come for them, and the agent's own API.

A stream to a sleeping machine starts the wake and the TCP handshake side by side (packets wait in the tap until the
vCPUs run), but no byte passes before the gate is open. Refusals carry the codes of tunnel/wire/SPEC.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from hosts.agent.machine import Machine
from hosts.agent.starts import Gone, StartFailed
from hosts.agent.trace import Asked
from hosts.guest.client import GuestError
from hosts.net.network import NetworkError
from hosts.wire.events import Cause
from hosts.wire.spec import MachineId
from hosts.wire.states import MachineState
from tunnel.dial import Target, Watcher
from tunnel.tasks import spawn
from tunnel.wire import Code, Refused

log = structlog.get_logger(__name__)

WAKE_DEADLINE_S = 610.0  # a request's wake; above what an edge may be set to wait, below the dialer's own limit
CONNECT_DEADLINE_S = 10.0  # an app that runs takes no connection: given up
CONNECT_ATTEMPT_S = 1.0  # one unanswered handshake; a guest that died is noticed after at most this long
CONNECT_RETRY_S = 0.02  # between attempts
EARLY_CONNECT_S = 1.0  # how long after the wake a handshake begun before it may still take
HOST_CONNECT_TIMEOUT_S = 5.0  # to the agent's own API

FindMachine = Callable[[MachineId], Machine | None]


class MachineGate:
    """Holds the bytes of one stream while its machine sleeps."""

    def __init__(self, machine: Machine, *, may_wake: bool, request: str, quiet: bool = False) -> None:
        self._machine = machine
        self._request = request
        self._may_wake = may_wake
        self._quiet = quiet

    def is_open(self) -> bool:
        """Whether bytes may pass now."""
        return self._machine.gate_open

    async def wait(self) -> Watcher | None:
        """Wake the machine, or Refused."""
        asked = Asked(self._machine.parts.clock, self._request, kept=True)
        with self._machine.activity.held(quiet=self._quiet):
            await wake(self._machine, may_wake=self._may_wake, asked=asked)
        return asked.caused

    def touch(self) -> None:
        """Bytes came."""
        if not self._quiet:
            self._machine.activity.touch()


class Streams:
    """`tunnel.dial.Handler`."""

    def __init__(self, *, find: FindMachine, machines: Callable[[], list[Machine]], api_socket: Path) -> None:
        self._find = find
        self._machines = machines
        self._api_socket = api_socket

    async def open_machine(self, machine: str, *, may_wake: bool, request: str, quiet: bool = False) -> Target:
        """A connection to the app, awake."""
        found = self._known(machine)
        asked = Asked(found.parts.clock, request)
        with found.activity.held(quiet=quiet):
            vm = found.vm
            early = _connect_early(found) if may_wake else None
            try:
                await wake(found, may_wake=may_wake, asked=asked)
            except BaseException:
                if early is not None:
                    _discard(early)
                raise
            sock = await _finish(early, same_guest=found.vm is vm) if early is not None else None
            try:
                sock = sock or await _connect(found, may_wake=may_wake, asked=asked)
            except Refused:
                if asked.caused is not None:
                    asked.caused.stream_ended()
                raise
            gate = MachineGate(found, may_wake=may_wake, request=request, quiet=quiet)
            return Target(sock, gate, asked.caused, asked.opened())

    def machine_state(self, machine: str) -> str:
        """What a probe is answered."""
        return _state(self._known(machine))

    def _known(self, machine: str) -> Machine:
        found = self._find(MachineId(machine))
        if found is None:
            raise Refused(Code.MACHINE_UNKNOWN, "find", f"no machine {machine} on this host")
        return found

    async def open_host(self) -> socket.socket:
        """A connection to the agent's API."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            async with asyncio.timeout(HOST_CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(sock, str(self._api_socket))
        except (OSError, TimeoutError) as e:
            sock.close()
            raise Refused(Code.HOST_BUSY, "connect", f"the host agent's API does not answer: {e}") from None
        return sock

    def activity(self, edge: str, machine: str, in_flight: int, *, quiet: bool = False) -> None:
        """An edge tells how many requests it has in flight."""
        found = self._find(MachineId(machine))
        if found is not None:
            found.activity.set_in_flight(edge, in_flight, quiet=quiet)

    def link_lost(self, edge: str) -> None:
        """A closed link has nothing in flight."""
        for machine in self._machines():
            machine.activity.forget(edge)


def _state(machine: Machine) -> str:
    state = machine.history.state
    return "waking" if machine.waking and state is not MachineState.RUNNING else state.value


async def wake(machine: Machine, *, may_wake: bool, asked: Asked) -> None:
    """Return once the gate is open, or Refused."""
    if machine.gate_open:
        return
    if not may_wake:
        raise Refused(
            Code.MACHINE_ASLEEP, "wake", f"the machine is {machine.history.state} and this route may not wake it"
        )
    try:
        await machine.wake(Cause.REQUEST, deadline_s=WAKE_DEADLINE_S, asked=asked)
    except StartFailed as e:
        code = Code.MACHINE_FAILED if machine.history.state is MachineState.FAILED else Code.WAKE_FAILED
        raise Refused(code, e.failure.phase, f"{e.failure.code}: {e.failure.message}") from None
    except Gone:
        raise Refused(Code.MACHINE_UNKNOWN, "wake", "the machine is being removed") from None
    except TimeoutError:
        raise Refused(Code.WAKE_TIMEOUT, machine.phase, f"not awake after {WAKE_DEADLINE_S:.0f} s") from None


async def _connect(machine: Machine, *, may_wake: bool, asked: Asked) -> socket.socket:
    """Connect to the app, patiently: it may be restarting, have moved to another port, or have died with its guest."""
    loop = asyncio.get_running_loop()
    patience_until = loop.time() + CONNECT_DEADLINE_S
    while True:
        if not machine.gate_open:  # the guest died since it was found running: this request meets its cold boot
            await wake(machine, may_wake=may_wake, asked=asked)
            patience_until = loop.time() + CONNECT_DEADLINE_S
        try:
            return await machine.connect(CONNECT_ATTEMPT_S)
        except (OSError, TimeoutError, GuestError, NetworkError) as e:
            last = e
        if machine.gate_open and loop.time() >= patience_until:
            log.warning("stream.app_refused", machine=machine.spec.machine_id, request=asked.request, error=repr(last))
            raise Refused(Code.APP_REFUSED, "connect", f"the app does not accept connections: {last!r}")
        await asyncio.sleep(CONNECT_RETRY_S)


def _connect_early(machine: Machine) -> asyncio.Task[socket.socket | None] | None:
    """Only to a paused machine: its process still holds the tap, so the handshake waits there and is not lost."""
    if machine.history.state is not MachineState.PAUSED:
        return None
    return spawn(_try_connect(machine), name=f"connect-{machine.spec.machine_id}")


async def _try_connect(machine: Machine) -> socket.socket | None:
    with contextlib.suppress(OSError, TimeoutError, GuestError, NetworkError):
        return await machine.connect(CONNECT_ATTEMPT_S)
    return None


async def _finish(early: asyncio.Task[socket.socket | None], *, same_guest: bool) -> socket.socket | None:
    """The early connection, if it came about; one to a guest that was given up for a cold boot leads nowhere."""
    if not same_guest:
        _discard(early)
        return None
    try:
        async with asyncio.timeout(EARLY_CONNECT_S):
            return await early
    except TimeoutError:
        return None


def _discard(early: asyncio.Task[socket.socket | None]) -> None:
    early.cancel()
    early.add_done_callback(_close_result)


def _close_result(early: asyncio.Task[socket.socket | None]) -> None:
    if not early.cancelled() and (sock := early.result()) is not None:
        sock.close()
