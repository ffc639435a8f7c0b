"""A whole tunnel on loopback: a real edge, a real dialer, a recording backend in the place of the app."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.tunnel.backend import Backend
from tunnel.config import EdgeConfig
from tunnel.dial import Dialer, Target
from tunnel.edge.access import AccessLog
from tunnel.edge.limits import Limits
from tunnel.edge.server import Edge
from tunnel.wire import RAN, Code, Opened, Refused, Route, RouteTable

TOKEN = "k3PqLz8vXw2RtYn5HbJd7GfMs4QcVu9A"


@dataclass
class Machine:
    """A machine as its host agent sees it: awake or asleep, with a gate in front."""

    port: int
    awake: bool = True
    wakes: int = 0
    wake_s: float = 0.05
    touches: int = 0
    state: str = ""  # what a probe is told, if it is not what follows from the rest
    refuses: Refused | None = None
    _waking: asyncio.Future[None] | None = None

    @property
    def waking(self) -> bool:
        return self._waking is not None

    def touch(self) -> None:
        self.touches += 1

    def is_open(self) -> bool:
        return self.awake

    async def wait(self) -> None:
        if self.refuses is not None:
            raise self.refuses
        if self.awake:
            return
        if self._waking is None:
            self.wakes += 1
            self._waking = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(self.wake_s, self._up)
        await asyncio.shield(self._waking)

    def _up(self) -> None:
        waking, self._waking = self._waking, None
        self.awake = True
        if waking is not None and not waking.done():
            waking.set_result(None)


@dataclass
class Gate:
    """The gate of one stream: it wakes its machine only if the stream may."""

    machine: Machine
    may_wake: bool

    def touch(self) -> None:
        self.machine.touch()

    def is_open(self) -> bool:
        return self.machine.is_open()

    async def wait(self) -> None:
        if not self.machine.awake and not self.may_wake:
            raise Refused(Code.MACHINE_ASLEEP, "gate", "asleep, and this route may not wake it")
        await self.machine.wait()


@dataclass
class Agent:
    """The host agent's part of the tunnel."""

    machines: dict[str, Machine] = field(default_factory=dict)
    activities: list[tuple[str, int]] = field(default_factory=list)
    opens: list[str] = field(default_factory=list)
    quiets: list[str] = field(default_factory=list)
    loud: list[str] = field(default_factory=list)  # activity that was not quiet
    probes: int = 0
    opened: Opened = RAN
    lost: int = 0
    api_port: int = 0

    async def open_machine(self, machine: str, *, may_wake: bool, request: str, quiet: bool = False) -> Target:
        self.opens.append(machine)
        self.quiets += [machine] if quiet else []
        found = self.machines.get(machine)
        if found is None:
            raise Refused(Code.MACHINE_UNKNOWN, "open", f"no machine {machine}")
        gate = Gate(found, may_wake)
        await gate.wait()
        try:
            return Target(await connect(found.port), gate, opened=self.opened)
        except OSError as e:
            raise Refused(Code.APP_REFUSED, "connect", str(e)) from None

    def machine_state(self, machine: str) -> str:
        self.probes += 1
        found = self.machines.get(machine)
        if found is None:
            raise Refused(Code.MACHINE_UNKNOWN, "find", f"no machine {machine}")
        return found.state or ("running" if found.awake else "waking" if found.waking else "suspended")

    async def open_host(self) -> socket.socket:
        return await connect(self.api_port)

    def activity(self, edge: str, machine: str, in_flight: int, *, quiet: bool = False) -> None:
        self.activities.append((machine, in_flight))
        self.loud += [] if quiet else [machine]

    def link_lost(self, edge: str) -> None:
        self.lost += 1


async def connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


class World:
    """Everything, started."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder = folder
        self.config = EdgeConfig(
            name="edge-t",
            http=("127.0.0.1", 0),
            link=("127.0.0.1", 0),
            control_socket=folder / "edge.sock",
            state=folder / "state",
            link_token=TOKEN,
            limits=limits or Limits(drain_s=2.0),
        )
        self.backend = Backend()
        self.agent = Agent()
        self.log_file = folder / "access.log"
        self._null: list[int] = []
        self.edge: Edge
        self.dialer: Dialer
        self._dialing: asyncio.Task[None] | None = None

    @property
    def machine(self) -> Machine:
        return self.agent.machines["m1"]

    @property
    def port(self) -> int:
        return self.edge.http_port

    async def start(self) -> None:
        await self.backend.start()
        self.agent.api_port = self.backend.port
        self.agent.machines["m1"] = Machine(self.backend.port)
        await self.start_edge()
        await self.start_dialer()
        await self.publish(1)

    async def start_edge(self, *, http_port: int = 0, link_port: int = 0) -> None:
        log = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._null.append(log)
        config = self.config
        if link_port:
            config = EdgeConfig(
                name=config.name,
                http=("127.0.0.1", http_port),
                link=("127.0.0.1", link_port),
                control_socket=config.control_socket,
                state=config.state,
                link_token=TOKEN,
                limits=config.limits,
            )
        self.edge = Edge(config, access=AccessLog(log))
        await self.edge.start()

    async def start_dialer(self) -> None:
        self.dialer = Dialer([("127.0.0.1", self.edge.link_port)], "h1", TOKEN, self.agent)
        self._dialing = asyncio.get_running_loop().create_task(self.dialer.run())
        await until(lambda: bool(self.edge.linked_hosts()))

    async def stop_dialer(self) -> None:
        if self._dialing is not None:
            self._dialing.cancel()
            await asyncio.gather(self._dialing, return_exceptions=True)
            self._dialing = None

    async def publish(self, generation: int, *routes: Route) -> int:
        table = RouteTable(generation, routes or (Route("blog.localhost", "m1", "h1", "blog"),))
        return await self.edge.core.router.publish(table.encode())

    async def stop(self) -> None:
        await self.edge.stop()
        await self.stop_dialer()
        await self.backend.stop()
        for fd in self._null:
            os.close(fd)

    # Clients

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def say(self, data: bytes, *, timeout_s: float = 10.0) -> bytes:
        """Send bytes, and read until the edge closes."""
        reader, writer = await self.open()
        try:
            writer.write(data)
            async with asyncio.timeout(timeout_s):
                return await reader.read()
        finally:
            writer.close()

    async def get(self, path: str = "/", *lines: str, method: str = "GET", host: str = "blog.localhost") -> bytes:
        """One request on a connection of its own: the whole answer."""
        fields = "".join(f"{line}\r\n" for line in lines)
        return await self.say(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n".encode())


async def until(condition: object, timeout_s: float = 5.0) -> None:
    """Wait for a condition that has no event."""
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def world(folder: Path, limits: Limits | None = None) -> AsyncIterator[World]:
    """A started world, stopped at the end."""
    it = World(folder, limits)
    await it.start()
    try:
        yield it
    finally:
        await it.stop()
