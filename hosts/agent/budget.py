"""How much of the host's memory VMMs may have, and who has it: taken before one starts, given back when it has ended.

A paused machine still has its share. When too little is left for a start, paused machines are suspended, the longest
asleep first; what runs is never touched. What does not fit then is refused, and says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from hosts.vmm.protocol import ProcessRecord, Vm, VmConfig, Vmm, VmmError
from tunnel.tasks import spawn

# Beside its guest's memory a QEMU takes this much of its own: translated code and, under TCG, maps of the guest.
VMM_MIB = 96  # of each machine for its VMM
# For everything that is not a VMM: the kernel, the agent, and on one box control, Postgres, Redis and the edge.
RESERVED_MIB = 1024  # of the host for everything else
LEAST_MIB = 2560  # room for one build, however small the host
PRESSED_SHARE = 8  # under pressure when less than one in so many parts is free

# A start waits this long for room that others are about to give back. A build is not waited for by a visitor.
PATIENCE_S = 5.0  # a start waits for memory that others give back
BUILD_PATIENCE_S = 60.0  # a build waits for it
LOOK_AGAIN_S = 0.25  # between looks for it


class HostMemoryFull(VmmError):  # noqa: N818 - reads as the fact it states
    """There is no room for this VMM now; nothing was started."""


def machine_memory_mib(meminfo: Path = Path("/proc/meminfo")) -> int:
    """What VMMs may have of this host's memory when nobody says otherwise (blocking)."""
    found = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    return max(LEAST_MIB, (int(found[1]) // 1024 if found else 0) - RESERVED_MIB)


async def _nobody() -> bool:
    return False


class Budget:
    """Memory for VMMs, in MiB."""

    def __init__(self, total_mib: int) -> None:
        self.total_mib = total_mib
        # Makes one sleeping machine give its memory back; False if there is none that can.
        self.relieve: Callable[[], Awaitable[bool]] = _nobody
        self._taken: dict[
            object, int
        ] = {}  # by a token of its own: a machine's next VMM may start before the last ended
        self._relieving = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def free_mib(self) -> int:
        """What may still be taken; negative when more than everything was found taken at the start of the agent."""
        return self.total_mib - sum(self._taken.values())

    @property
    def pressed(self) -> bool:
        """Whether so little is left that those who are paused should not keep theirs for long."""
        return self.free_mib * PRESSED_SHARE < self.total_mib

    async def take(self, wanted_mib: int, *, patience_s: float | None = None) -> object:
        """Reserve that much and return the token to give it back with, or HostMemoryFull."""
        await self.make_room(wanted_mib, patience_s=patience_s)
        return self.take_anyway(wanted_mib)

    def take_anyway(self, mib: int) -> object:
        """For a VMM that runs already: an agent finds it so."""
        token = object()
        self._taken[token] = mib
        return token

    def give_back(self, token: object) -> None:
        """It has ended. Idempotent."""
        self._taken.pop(token, None)
        self._changed.set()
        self._changed = asyncio.Event()

    async def make_room(self, wanted_mib: int, *, patience_s: float | None = None) -> None:
        """Return once that much is free, or HostMemoryFull. What is free when it returns is nobody's yet."""
        if wanted_mib > self.total_mib:
            raise self._full(wanted_mib)
        try:
            async with asyncio.timeout(PATIENCE_S if patience_s is None else patience_s):
                while self.free_mib < wanted_mib:
                    async with self._relieving:  # one at a time, or two would suspend more than they need
                        changed = self._changed
                        if self.free_mib < wanted_mib:
                            await self.relieve()
                            # The end of what was suspended is heard of a moment later; and who runs now may be paused
                            # soon.
                            with suppress(TimeoutError):
                                await asyncio.wait_for(changed.wait(), LOOK_AGAIN_S)
        except TimeoutError:
            raise self._full(wanted_mib) from None

    def _full(self, wanted_mib: int) -> HostMemoryFull:
        return HostMemoryFull(
            f"the host's memory is full: {wanted_mib} MiB wanted, {max(0, self.free_mib)} of {self.total_mib} MiB free"
        )


class BudgetedVmm:
    """A `Vmm` that starts nothing without memory for it."""

    def __init__(self, vmm: Vmm, budget: Budget, *, patience_s: float | None = None) -> None:
        self._vmm = vmm
        self._budget = budget
        self._patience_s = patience_s

    @property
    def version(self) -> str:
        """See `Vmm`."""
        return self._vmm.version

    def arguments_sha256(self, config: VmConfig) -> str:
        """See `Vmm`."""
        return self._vmm.arguments_sha256(config)

    async def boot(self, config: VmConfig) -> Vm:
        """See `Vmm`; HostMemoryFull as well."""
        return await self._within_budget(config, lambda: self._vmm.boot(config))

    async def load(self, config: VmConfig, state: Path) -> Vm:
        """See `Vmm`; HostMemoryFull as well, and the pair is as good as it was."""
        return await self._within_budget(config, lambda: self._vmm.load(config, state))

    async def adopt(self, config: VmConfig, record: ProcessRecord) -> Vm | None:
        """See `Vmm`. What runs is counted, whether there is room or not."""
        vm = await self._vmm.adopt(config, record)
        if vm is not None:
            self._until_its_end(vm, config, self._budget.take_anyway(wanted_mib(config)))
        return vm

    async def _within_budget(self, config: VmConfig, start: Callable[[], Awaitable[Vm]]) -> Vm:
        token = await self._budget.take(wanted_mib(config), patience_s=self._patience_s)
        try:
            vm = await start()
        except BaseException:
            self._budget.give_back(token)
            raise
        self._until_its_end(vm, config, token)
        return vm

    def _until_its_end(self, vm: Vm, config: VmConfig, token: object) -> None:
        async def wait() -> None:
            await vm.exited.wait()
            self._budget.give_back(token)

        spawn(wait(), name=f"budget-{config.name}")


def wanted_mib(config: VmConfig) -> int:
    """What a VMM of this config may come to take."""
    return config.memory_mib + VMM_MIB
