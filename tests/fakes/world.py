"""What outlives an agent in a test: fake VMM processes, the memory of their guests, and the namespaces they are in.

One `World` is one host. An agent that dies and its successor are two sets of parts over the same world.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from hosts.vmm.protocol import ProcessRecord, VmConfig

BOOT_ID = "fake-boot"


@dataclass(slots=True)
class App:
    """How the app of a machine behaves; a test changes it before or while it runs."""

    port: int = 8080
    listens: bool = True
    exit_code: int | None = None  # ended before it listened
    status: int = 200
    resume_error: str = ""  # the resume contract fails with this
    resume_hangs: bool = False
    hello_hangs: bool = False


@dataclass(slots=True)
class GuestMemory:
    """What a guest knows, and forgets with its memory."""

    started: bool = False
    count: int = 0  # requests answered
    lines: list[str] = field(default_factory=list)
    clock_ms: int = 0
    entropy: list[bytes] = field(default_factory=list)
    resumes: int = 0
    runs: int = 0  # how often its vCPUs were let go: a snapshot of before is spent


@dataclass(slots=True)
class Process:
    """A VMM process."""

    config: VmConfig
    record: ProcessRecord
    memory: GuestMemory
    running: bool = False
    alive: bool = True
    silent: bool = False  # QMP does not answer
    run_since: asyncio.Event = field(default_factory=asyncio.Event)
    on_exit: list[Callable[[], None]] = field(default_factory=list)

    def set_running(self, running: bool) -> None:  # noqa: FBT001 - a state, not an option
        self.running = running
        if running:
            self.memory.runs += 1
            self.run_since.set()
        else:
            self.run_since.clear()

    def end(self) -> None:
        """kill -9."""
        if self.alive:
            self.alive = False
            self.set_running(False)
            for tell in self.on_exit:
                tell()


class World:
    """One host."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.memories: dict[str, GuestMemory] = {}  # by machine folder: what its memory file holds
        self.apps: dict[str, App] = {}  # by machine id
        self.namespaces: set[int] = set()
        self.network_failures = 0  # how often a namespace cannot be made
        self.boots = 0
        self.loads = 0
        self._pids = itertools.count(1000)

    def app(self, machine_id: str) -> App:
        return self.apps.setdefault(machine_id, App())

    def start(self, config: VmConfig, memory: GuestMemory) -> Process:
        pid = next(self._pids)
        process = Process(config, ProcessRecord(pid, pid * 10, BOOT_ID), memory)
        self.processes.append(process)
        return process

    def alive(self, name: str | None = None) -> list[Process]:
        return [p for p in self.processes if p.alive and (name is None or p.config.name == name)]

    def in_namespace(self, netns: str) -> Process | None:
        return next((p for p in self.alive() if p.config.netns == netns), None)
