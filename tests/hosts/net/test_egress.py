"""A real guest and a made-up internet: what it reaches with no way out, with one, and when that is taken away.

The internet is a namespace of our own behind a veth, with an address like a public server's, one in a private range
and a name server in a private range. No packet leaves this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

import pytest

from hosts.net import namespaces
from hosts.net.network import Network
from hosts.wire.spec import Egress
from tests.hosts.tiny_machine import MakeMachine, TinyMachine

pytestmark = [pytest.mark.vm, pytest.mark.root]

SINK_PORT = 54


@dataclass(frozen=True)
class Addresses:
    """Other ones in every run: two may be under way on one machine, and routes to these are in its root namespace."""

    host: str
    public: str
    private: str
    link_local: str  # where clouds keep their metadata
    nameserver: str


@pytest.fixture
def addresses(instance: str, nameserver: str) -> Addresses:
    number = int(instance, 16)
    quad = 4 * (number % 64)
    private = nameserver.replace("10.253.", "10.254.")
    return Addresses(
        host=f"198.51.100.{quad + 1}",
        public=f"198.51.100.{quad + 2}",
        private=private,
        link_local=private.replace("10.254.", "169.254."),
        nameserver=nameserver,
    )


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=10)


class Internet:
    """Answers on every port that is asked below, and counts what comes in on SINK_PORT."""

    received = 0
    host_port = 0

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []

    async def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"found\n")
        writer.close()

    async def count(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while data := await reader.read(4096):
            self.received += len(data)


@pytest.fixture
async def internet(instance: str, addresses: Addresses) -> AsyncIterator[Internet]:
    """Public, private, metadata and name server addresses behind a veth, and a port of the host itself."""
    name, internet = f"net{instance}", Internet()
    closed = (addresses.private, addresses.link_local, addresses.nameserver)
    async with contextlib.AsyncExitStack() as stack:
        run("ip", "netns", "add", name)
        stack.callback(run, "ip", "netns", "delete", name)
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        # Explicitly: a namespace may live on for a while after its last name, and the routes here with it.
        stack.callback(run, "ip", "link", "delete", name)
        run("ip", "address", "add", f"{addresses.host}/30", "dev", name)
        run("ip", "link", "set", name, "up")
        for command in (
            ["link", "set", "lo", "up"],
            ["link", "set", "eth0", "up"],
            ["address", "add", f"{addresses.public}/30", "dev", "eth0"],
            *(["address", "add", f"{address}/32", "dev", "eth0"] for address in closed),
        ):
            run("ip", "-netns", name, *command)
        for address in closed:
            run("ip", "route", "add", f"{address}/32", "via", addresses.public)
        inside = namespaces.open_namespace(name)
        stack.callback(os.close, inside)
        for port, serve in ((80, internet.answer), (53, internet.answer), (SINK_PORT, internet.count)):
            listener = namespaces.inside(inside, partial(socket.create_server, ("", port)))
            await stack.enter_async_context(await asyncio.start_server(serve, sock=listener))
        on_host = await asyncio.start_server(internet.answer, "", 0, family=socket.AF_INET)
        internet.host_port = on_host.sockets[0].getsockname()[1]
        await stack.enter_async_context(on_host)
        stack.push_async_callback(internet.close)  # the other end is cut off and will never close
        yield internet


async def reaches(machine: TinyMachine, address: str, port: int = 80) -> bool:
    return "found" in await machine.ask(f"echo | nc -w 2 {address} {port}")


async def test_what_a_guest_reaches(
    make_machine: MakeMachine, network: Network, instance: str, internet: Internet, addresses: Addresses
) -> None:
    machine = await make_machine(slot=1)
    await machine.boot()
    assert not await reaches(machine, addresses.public), "no way out at first"

    await network.set_egress(1, Egress.OPEN)
    assert await reaches(machine, addresses.public)
    assert await reaches(machine, addresses.nameserver, 53), "the operator's name server, though its range is closed"
    own_end = uplink_address(instance)
    for address, port in (
        (addresses.nameserver, 80),
        (addresses.private, 80),
        (addresses.link_local, 80),
        (addresses.host, internet.host_port),
        (own_end, internet.host_port),
        ("172.31.255.1", internet.host_port),
    ):
        assert not await reaches(machine, address, port), f"{address}:{port} must be out of reach"

    await machine.ask(f"(while sleep 0.1; do echo tick; done | nc {addresses.public} {SINK_PORT}) > /dev/null 2>&1 &")
    await until(lambda: internet.received > 0)
    await network.set_egress(1, Egress.NONE)
    received = internet.received
    assert not await reaches(machine, addresses.public)
    assert internet.received == received, "what was established is cut, too"
    assert await machine.count() == 1, "the agent reaches it all the same"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.05)


def uplink_address(instance: str) -> str:
    """The host's end of slot 1's uplink."""
    listed = subprocess.run(
        ["ip", "-4", "-brief", "address", "show", f"bw{instance}u1"], capture_output=True, text=True, check=True
    ).stdout
    return listed.split()[2].partition("/")[0]
