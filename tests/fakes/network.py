"""Namespaces without root: a connection is a socket pair whose other end the fake guest serves while its vCPUs run."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

from hosts.guest.client import AGENT_PORT
from hosts.net.network import NetworkError
from hosts.wire.allowlist import AllowedName
from hosts.wire.commands import OutboundName
from hosts.wire.spec import Egress
from tests.fakes.world import Process, World
from tunnel.tasks import spawn


class GuestSocket(socket.socket):
    """A connection to a guest agent; the fake client reads the other end off it."""

    process: Process


@dataclass(frozen=True, slots=True)
class FakeNamespace:
    """`Namespace` of one slot."""

    world: World
    slot: int

    @property
    def name(self) -> str:
        return f"fake-{self.slot}"

    async def datagrams(self, port: int, timeout_s: float) -> socket.socket:
        return await self.connect(port, timeout_s)  # the fake client reads the process off it, whatever it is

    async def connect(self, port: int, timeout_s: float) -> socket.socket:
        async with asyncio.timeout(timeout_s):
            while True:  # an unanswered SYN
                process = self.world.in_namespace(self.name)
                if process is not None:
                    await process.run_since.wait()
                    break
                await asyncio.sleep(0.005)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        if port == AGENT_PORT:
            theirs.close()
            agent = GuestSocket(fileno=ours.detach())
            agent.process = process
            return agent
        app = self.world.app(process.config.name)
        if not app.listens or app.port != port:
            ours.close()
            theirs.close()
            raise ConnectionRefusedError(111, "Connection refused")
        spawn(_serve(theirs, process, self.world), name="fake-app")
        return ours


class FakeNetwork:
    """`Network` that only remembers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.egress: dict[int, Egress] = {}
        self.allow: dict[int, tuple[AllowedName, ...]] = {}
        self.asked: dict[int, tuple[OutboundName, ...]] = {}

    def name_of(self, slot: int) -> str:
        return FakeNamespace(self.world, slot).name

    async def ensure(self, slot: int, egress: Egress, uid: int, allow: tuple[AllowedName, ...] = ()) -> FakeNamespace:
        if self.world.network_failures:
            self.world.network_failures -= 1
            raise NetworkError("no link just now")
        self.world.namespaces.add(slot)
        self.egress[slot], self.allow[slot] = egress, allow
        return FakeNamespace(self.world, slot)

    async def set_egress(self, slot: int, egress: Egress, allow: tuple[AllowedName, ...] = ()) -> None:
        self.egress[slot], self.allow[slot] = egress, allow

    def outbound(self, slot: int) -> tuple[OutboundName, ...]:
        return self.asked.get(slot, ())

    async def remove(self, slot: int) -> None:
        assert self.world.in_namespace(f"fake-{slot}") is None, "the namespace is in use"
        self.world.namespaces.discard(slot)

    async def reclaim(self, keep: frozenset[int]) -> frozenset[int]:
        gone = frozenset(self.world.namespaces - keep)
        self.world.namespaces -= gone
        return gone


async def _serve(sock: socket.socket, process: Process, world: World) -> None:
    """The app: counts requests in its memory and answers each with the count."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(sock, 65536):
            await process.run_since.wait()
            process.memory.count += 1
            body = str(process.memory.count)
            status = world.app(process.config.name).status
            await loop.sock_sendall(sock, f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    except OSError:
        pass
    finally:
        sock.close()
