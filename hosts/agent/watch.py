"""Two slow loops that notice what nobody reports: a VMM or guest that hangs, and how long the agent has lived.

QEMU saying "running" proves nothing, so running guests are asked themselves. The alive stamp is the last proof of
life that a session is billed to when the agent or the host dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from hosts.agent.clock import Clock
from hosts.agent.durable import Scribe, replace_file
from hosts.agent.machine import Machine
from hosts.guest.client import GuestError
from hosts.vmm.protocol import Vm, VmmError

log = structlog.get_logger(__name__)

STAMP_EVERY_S = 2.0  # the agent notes that it lives
ROUND_EVERY_S = 10.0  # running guests are asked whether they live
GUEST_TIMEOUT_S = 10.0  # for their answer
MAX_MISSES = 4  # in a row, and a guest is taken for dead; one under TCG on a busy host may well miss one
ASKED_AT_ONCE = 8  # guests


class AliveStamp:
    """When this agent, or the one before it, was last known to be alive."""

    def __init__(self, path: Path, clock: Clock, scribe: Scribe) -> None:
        self._path = path
        self._clock = clock
        self._scribe = scribe

    def read_ms(self) -> int:
        """The last stamp; 0 if there is none."""
        try:
            text = self._path.read_text()
        except (FileNotFoundError, UnicodeDecodeError):
            return 0
        return int(text) if text.isascii() and text.isdigit() else 0

    async def run(self) -> None:
        """Stamp for ever."""
        while True:
            try:
                await self._scribe.run(replace_file, self._path, str(self._clock.wall_ms()).encode())
            except OSError as e:
                log.error("alive.not_stamped", error=str(e))
            await self._clock.sleep(STAMP_EVERY_S)


class Watchdog:
    """Asks every running machine now and then, and gives up on one that stays silent."""

    def __init__(self, machines: Callable[[], list[Machine]], clock: Clock) -> None:
        self._machines = machines
        self._clock = clock
        self._misses: dict[Vm, int] = {}

    async def run(self) -> None:
        """Make rounds for ever."""
        while True:
            await self._clock.sleep(ROUND_EVERY_S)
            await self.round()

    async def round(self) -> None:
        """Ask every running machine once."""
        running = [(m, m.vm) for m in self._machines() if m.gate_open and m.vm is not None]
        self._misses = {vm: n for vm, n in self._misses.items() if any(vm is v for _, v in running)}
        turns = asyncio.Semaphore(ASKED_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for machine, vm in running:
                group.create_task(self._ask(machine, vm, turns), name=f"ask-{machine.spec.machine_id}")

    async def _ask(self, machine: Machine, vm: Vm, turns: asyncio.Semaphore) -> None:
        async with turns:
            silent = await self._silence(machine, vm)
            if not silent or not machine.gate_open or machine.vm is not vm:
                self._misses.pop(vm, None)  # it answered, or went to sleep while it was asked
                return
            misses = self._misses[vm] = self._misses.get(vm, 0) + 1
            log.warning("machine.silent", machine=machine.spec.machine_id, misses=misses, why=silent)
            if misses >= MAX_MISSES:
                del self._misses[vm]
                await machine.crashed(vm, f"it hung: {silent}")

    async def _silence(self, machine: Machine, vm: Vm) -> str:
        try:
            await vm.is_running()
            await machine.guest.status(GUEST_TIMEOUT_S)
        except (VmmError, GuestError) as e:
            return str(e)
        return ""
