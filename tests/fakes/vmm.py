"""A VMM without QEMU, held to the contract of the real one by tests/hosts/agent/test_vmm_contract.py."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from hosts.vmm.protocol import ProcessRecord, StateRefused, VmConfig, VmmError
from tests.fakes.world import GuestMemory, Process, World


class FakeVm:
    """`Vm` over a process of the world."""

    def __init__(self, process: Process, vmm: FakeVmm) -> None:
        self.process = process
        self._vmm = vmm
        self._exited = asyncio.Event()
        self.closed = False
        process.on_exit.append(self._exited.set)
        if not process.alive:
            self._exited.set()

    @property
    def record(self) -> ProcessRecord:
        return self.process.record

    @property
    def exited(self) -> asyncio.Event:
        return self._exited

    async def pause(self) -> None:
        self._answers()
        self.process.set_running(False)

    async def resume(self) -> None:
        self._answers()
        if self._vmm.fail_resume:
            raise VmmError("QMP cont: refused")
        self.process.set_running(True)

    async def is_running(self) -> bool:
        self._answers()
        return self.process.running

    async def save(self, state: Path) -> None:
        self._answers()
        if self._vmm.fail_save:
            raise VmmError("QMP migrate: No space left on device")
        state.write_text(json.dumps({"name": self.process.config.name, "runs": self.process.memory.runs}))

    async def kill(self) -> None:
        self.process.end()

    def console_tail(self) -> str:
        return "Kernel panic"

    def close(self) -> None:
        self.closed = True

    def _answers(self) -> None:
        if not self.process.alive or self.process.silent:
            raise VmmError("QMP: no answer")


class FakeVmm:
    """`Vmm` over a world."""

    version = "fake 1"

    def __init__(self, world: World) -> None:
        self.world = world
        self.fail_boot = ""
        self.fail_load = ""
        self.fail_save = False
        self.fail_resume = False

    def arguments_sha256(self, config: VmConfig) -> str:
        shape = (config.memory_mib, config.vcpus, [(d.serial, d.read_only) for d in config.disks], config.mac)
        return hashlib.sha256(repr(shape).encode()).hexdigest()

    async def boot(self, config: VmConfig) -> FakeVm:
        if self.fail_boot:
            raise VmmError(self.fail_boot)
        self._only_one(config)
        (config.folder / "memory").write_bytes(b"fresh" * 100)
        memory = self.world.memories[str(config.folder)] = GuestMemory()
        self.world.boots += 1
        process = self.world.start(config, memory)
        process.set_running(True)
        return FakeVm(process, self)

    async def load(self, config: VmConfig, state: Path) -> FakeVm:
        if self.fail_load:
            raise VmmError(self.fail_load)
        if not state.exists() or (saved := json.loads(state.read_text()))["name"] != config.name:
            raise StateRefused("load of migration failed")
        self._only_one(config)
        memory = self.world.memories[str(config.folder)]
        if saved["runs"] != memory.runs:  # QEMU would say "running", and the guest's kernel would oops
            raise AssertionError(f"a spent pair of {config.name} was loaded")
        self.world.loads += 1
        return FakeVm(self.world.start(config, memory), self)

    async def adopt(self, config: VmConfig, record: ProcessRecord) -> FakeVm | None:
        for process in self.world.alive(config.name):
            if process.record == record:
                if process.silent:
                    process.end()
                    return None
                return FakeVm(process, self)
        return None

    async def reclaim(self, keep: Collection[ProcessRecord]) -> tuple[str, ...]:
        orphans = [p for p in self.world.alive() if p.record not in keep]
        for orphan in orphans:
            orphan.end()
        return tuple(p.config.name for p in orphans)

    def _only_one(self, config: VmConfig) -> None:
        if self.world.alive(config.name):
            raise AssertionError(f"two VMMs of {config.name}")
