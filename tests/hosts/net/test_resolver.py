"""Egress `allowlist` in the real kernel: a peer in a namespace of its own stands for the guest, a bridge for its VMM.

The internet is another namespace of ours: a name server that counts what it is asked, and servers on two addresses
like public ones and on a private one. No packet leaves this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from hosts.net import namespaces
from hosts.net.addresses import GATEWAY_ADDRESS, GUEST_ADDRESS, GUEST_MAC, TAP, machine_uid
from hosts.net.network import Network
from hosts.net.resolver import BURST
from hosts.wire.allowlist import AllowedName
from hosts.wire.spec import Egress

pytestmark = pytest.mark.root

SLOT = 2
PYPI = AllowedName("pypi.example")
WILD = AllowedName("*.example.org", (443,))


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=10)


@dataclass
class Internet:
    """What stands behind the uplink."""

    public: str
    other: str
    private: str
    nameserver: str
    records: dict[str, list[tuple[str, int, str, str]]] = field(default_factory=dict)  # name -> owner, ttl, type, data
    asked: list[str] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    dead: bool = False
    truncate: bool = False

    def dns(self, data: bytes, *, udp: bool) -> bytes | None:
        query = dns.message.from_wire(data)
        name = query.question[0].name.to_text(omit_final_dot=True)
        self.asked.append(name)
        if self.dead:
            return None
        reply = dns.message.make_response(query)
        if udp and self.truncate:
            reply.flags |= dns.flags.TC
            return reply.to_wire()
        for owner, ttl, kind, text in self.records.get(name, []):
            reply.answer.append(dns.rrset.from_text(f"{owner}.", ttl, "IN", kind, text))
        if name not in self.records:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        return reply.to_wire(max_size=65_535)

    async def over_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(2))
        answer = self.dns(await reader.readexactly(size), udp=False)
        if answer is not None:
            writer.write(len(answer).to_bytes(2) + answer)
        self.writers.append(writer)
        writer.close()

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                writer.write(data)
        writer.close()

    async def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()  # the other end is cut off and will never close
        await asyncio.sleep(0.01)


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, internet: Internet) -> None:
        self.internet = internet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if answer := self.internet.dns(data, udp=True):
            self.transport.sendto(answer, addr)  # type: ignore[attr-defined]


@pytest.fixture
async def network(instance: str, nameserver: str) -> AsyncIterator[Network]:
    """One that a test may close: what it leaves is reclaimed by another."""
    network = Network(instance, (nameserver,))
    yield network
    network.close()
    cleaner = Network(instance, ())
    await cleaner.reclaim(frozenset())
    cleaner.close()


@pytest.fixture
async def internet(instance: str, nameserver: str) -> AsyncIterator[Internet]:
    number = int(instance, 16)
    quad = 8 * (number % 32)
    host, public, other = (f"198.51.100.{quad + step}" for step in (1, 2, 3))
    private = nameserver.replace("10.253.", "10.254.")
    internet, name = Internet(public, other, private, nameserver), f"net{instance}"
    async with contextlib.AsyncExitStack() as stack:
        run("ip", "netns", "add", name)
        stack.callback(run, "ip", "netns", "delete", name)
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        stack.callback(run, "ip", "link", "delete", name)
        run("ip", "address", "add", f"{host}/29", "dev", name)
        run("ip", "link", "set", name, "up")
        run("ip", "-netns", name, "link", "set", "lo", "up")
        run("ip", "-netns", name, "link", "set", "eth0", "up")
        for address in (f"{public}/29", f"{other}/29", f"{private}/32", f"{nameserver}/32"):
            run("ip", "-netns", name, "address", "add", address, "dev", "eth0")
        for address in (private, nameserver):
            run("ip", "route", "add", f"{address}/32", "via", public)
        inside = namespaces.open_namespace(name)
        stack.callback(os.close, inside)
        for port in (80, 443, 853, 8080):
            listener = namespaces.inside(inside, partial(socket.create_server, ("", port)))
            await stack.enter_async_context(await asyncio.start_server(internet.echo, sock=listener))
        listener = namespaces.inside(inside, partial(socket.create_server, ("", 53)))
        await stack.enter_async_context(await asyncio.start_server(internet.over_tcp, sock=listener))

        def bound() -> socket.socket:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            sock.bind((nameserver, 53))
            return sock

        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Datagrams(internet), sock=namespaces.inside(inside, bound)
        )
        stack.callback(transport.close)
        stack.push_async_callback(internet.close)
        yield internet


class Guest:
    """A namespace with the guest's addresses, joined to the machine's tap by a relay of frames."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    async def make_socket(self, kind: socket.SocketKind) -> socket.socket:
        def make() -> socket.socket:
            return socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)

        return await namespaces.inside_async(self.fd, make)

    async def open(self, address: str, port: int) -> socket.socket:
        sock = await self.make_socket(socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(2):
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def reaches(self, address: str, port: int = 443) -> bool:
        try:
            (await self.open(address, port)).close()
        except OSError:
            return False
        return True

    async def ask(self, name: str, kind: str = "A", *, server: str = GATEWAY_ADDRESS) -> dns.message.Message:
        return dns.message.from_wire(await self.send(dns.message.make_query(name, kind).to_wire(), server=server))

    async def send(self, data: bytes, *, server: str = GATEWAY_ADDRESS, timeout_s: float = 8) -> bytes:
        loop = asyncio.get_running_loop()
        with await self.make_socket(socket.SOCK_DGRAM) as sock:
            await loop.sock_connect(sock, (server, 53))
            await loop.sock_sendall(sock, data)
            async with asyncio.timeout(timeout_s):
                return await loop.sock_recv(sock, 65536)

    async def ask_over_tcp(self, name: str) -> dns.message.Message:
        loop, data = asyncio.get_running_loop(), dns.message.make_query(name, "A").to_wire()
        with await self.open(GATEWAY_ADDRESS, 53) as sock:
            await loop.sock_sendall(sock, len(data).to_bytes(2) + data)
            return dns.message.from_wire((await loop.sock_recv(sock, 65536))[2:])

    async def resolve(self, name: str) -> list[str]:
        return addresses(await self.ask(name))


def addresses(message: dns.message.Message) -> list[str]:
    return [record.to_text() for rrset in message.answer for record in rrset]


@pytest.fixture
async def guest(network: Network, instance: str, internet: Internet) -> AsyncIterator[Guest]:
    """The peer; its machine has egress `allowlist` with two entries."""
    namespace = await network.ensure(SLOT, Egress.ALLOWLIST, machine_uid(instance, SLOT), (PYPI, WILD))
    internet.records["pypi.example"] = [("pypi.example", 300, "A", internet.public)]
    name = f"peer{instance}"
    async with contextlib.AsyncExitStack() as stack:
        run("ip", "netns", "add", name)
        stack.callback(run, "ip", "netns", "delete", name)
        fd = namespaces.open_namespace(name)
        stack.callback(os.close, fd)
        taps = [
            namespaces.open_tap(namespace.name, TAP),
            namespaces.inside(fd, lambda: namespaces.attach_tap("eth0")),
        ]
        for tap in taps:
            stack.callback(os.close, tap)
        for command in (
            ["link", "set", "eth0", "address", GUEST_MAC],
            ["address", "add", f"{GUEST_ADDRESS}/30", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["route", "add", "default", "via", GATEWAY_ADDRESS],
        ):
            run("ip", "-netns", name, *command)
        loop = asyncio.get_running_loop()
        for source, target in (taps, reversed(taps)):
            loop.add_reader(source, relay, source, target)
            stack.callback(loop.remove_reader, source)
        yield Guest(fd)


def relay(source: int, target: int) -> None:
    with contextlib.suppress(OSError):
        while frame := os.read(source, 70_000):
            os.write(target, frame)


async def test_only_what_an_allowed_name_led_to_is_reached(guest: Guest, internet: Internet) -> None:
    assert not await guest.reaches(internet.public), "not before its name was asked for"
    assert await guest.resolve("PyPI.example") == [internet.public]
    assert await guest.reaches(internet.public, 443)
    assert await guest.reaches(internet.public, 80)
    assert not await guest.reaches(internet.public, 8080), "a port that is not on the list"
    assert not await guest.reaches(internet.other), "an address no name led to"
    for address, port in ((internet.nameserver, 853), (internet.nameserver, 443), (internet.private, 443)):
        assert not await guest.reaches(address, port)
    internet.records["a.example.org"] = [("a.example.org", 300, "A", internet.other)]
    assert await guest.resolve("a.example.org") == [internet.other]
    assert await guest.reaches(internet.other, 443)
    assert not await guest.reaches(internet.other, 80), "each name has ports of its own"


async def test_a_name_that_is_not_allowed_is_never_asked_upstream(
    guest: Guest, network: Network, internet: Internet
) -> None:
    for name in ("secret.evil.example", "example.org", "xpypi.example", "a.pypi.example", f"{'x' * 60}.evil.example"):
        assert (await guest.ask(name)).rcode() is dns.rcode.NXDOMAIN
    for kind in ("TXT", "NULL", "MX", "AAAA", "HTTPS", "CNAME"):
        reply = await guest.ask("pypi.example", kind)
        assert (reply.rcode(), reply.answer) == (dns.rcode.NOERROR, [])
    assert internet.asked == []
    assert await guest.resolve("pypi.example") == [internet.public]
    told = {one.name: (one.allowed, one.count) for one in network.outbound(SLOT)}
    assert told["secret.evil.example"] == (False, 1)
    assert told["pypi.example"] == (True, 7)


async def test_other_resolvers_cannot_be_asked(guest: Guest, internet: Internet) -> None:
    with pytest.raises((TimeoutError, OSError)):
        await guest.send(dns.message.make_query("evil.example", "A").to_wire(), server=internet.other, timeout_s=1)
    assert not await guest.reaches(internet.other, 53)
    reply = await guest.ask("evil.example", server=internet.nameserver)
    assert reply.rcode() is dns.rcode.NXDOMAIN, "the operator's server is ours here"
    assert internet.asked == []


async def test_an_allowed_name_leads_to_no_private_address(guest: Guest, internet: Internet) -> None:
    closed = (internet.private, "127.0.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "172.31.255.1", "0.0.0.1")
    internet.records["pypi.example"] = [("pypi.example", 300, "A", address) for address in closed]
    reply = await guest.ask("pypi.example")
    assert (reply.rcode(), reply.answer) == (dns.rcode.NOERROR, [])
    assert not await guest.reaches(internet.private)
    internet.records["pypi.example"].append(("pypi.example", 300, "A", internet.public))
    assert await guest.resolve("pypi.example") == [internet.public]


async def test_a_cname_is_followed_only_in_the_answer_of_an_allowed_name(guest: Guest, internet: Internet) -> None:
    internet.records["pypi.example"] = [
        ("pypi.example", 300, "CNAME", "cdn.example."),
        ("cdn.example", 0, "A", internet.public),
        ("stranger.example", 300, "A", internet.other),
    ]
    reply = await guest.ask("pypi.example")
    assert addresses(reply) == [internet.public]
    assert reply.answer[0].ttl >= 5, "a TTL of 0 is lifted"
    assert (await guest.ask("cdn.example")).rcode() is dns.rcode.NXDOMAIN
    assert await guest.reaches(internet.public)
    assert not await guest.reaches(internet.other), "a record nobody asked for"
    internet.records["pypi.example"] = [
        ("pypi.example", 300, "CNAME", "b.example."),
        ("b.example", 300, "CNAME", "pypi.example."),
    ]
    assert (await guest.ask("pypi.example")).rcode() is dns.rcode.SERVFAIL, "a loop"


async def test_huge_and_truncated_answers_and_tcp(guest: Guest, internet: Internet) -> None:
    internet.truncate = True
    internet.records["pypi.example"] = [
        ("pypi.example", 300, "A", f"198.51.{a}.{b}") for a in (101, 102) for b in range(250)
    ]
    internet.records["pypi.example"].insert(0, ("pypi.example", 300, "A", internet.public))
    assert len(await guest.resolve("pypi.example")) == 16
    assert len(addresses(await guest.ask_over_tcp("pypi.example"))) == 16
    assert (await guest.ask_over_tcp("evil.example")).rcode() is dns.rcode.NXDOMAIN


async def test_a_dead_upstream_fails_closed(guest: Guest, internet: Internet) -> None:
    internet.dead = True
    assert (await guest.ask("pypi.example")).rcode() is dns.rcode.SERVFAIL
    assert not await guest.reaches(internet.public)


async def test_a_flood_is_bounded_and_passes(guest: Guest, internet: Internet) -> None:
    loop = asyncio.get_running_loop()
    query = dns.message.make_query("pypi.example", "A").to_wire()
    with await guest.make_socket(socket.SOCK_DGRAM) as sock:
        await loop.sock_connect(sock, (GATEWAY_ADDRESS, 53))
        for garbage in (b"", b"x", b"\xff" * 12, os.urandom(400), query[:-3], query + b"x" * 600):
            await loop.sock_sendall(sock, garbage)
        for _ in range(2000):
            await loop.sock_sendall(sock, query)
        await asyncio.sleep(0.5)
    assert len(internet.asked) < BURST * 2
    await asyncio.sleep(0.5)
    assert await guest.resolve("pypi.example") == [internet.public]


async def test_a_change_is_at_once_and_cuts_what_is_established(
    guest: Guest, network: Network, internet: Internet
) -> None:
    internet.records["a.example.org"] = [("a.example.org", 300, "A", internet.other)]
    await guest.resolve("pypi.example")
    await guest.resolve("a.example.org")
    with await guest.open(internet.public, 443) as kept, await guest.open(internet.other, 443) as cut:
        assert await echoes(kept)
        assert await echoes(cut)
        await network.set_egress(SLOT, Egress.ALLOWLIST, (PYPI,))
        assert await echoes(kept)
        assert not await echoes(cut)
        assert not await guest.reaches(internet.other)
        assert (await guest.ask("a.example.org")).rcode() is dns.rcode.NXDOMAIN
        await network.set_egress(SLOT, Egress.NONE)
        assert not await echoes(kept)
        with pytest.raises(OSError, match="refused"):
            await guest.ask("pypi.example")
    await network.set_egress(SLOT, Egress.OPEN)
    assert await guest.resolve("pypi.example") == [internet.public], "open asks the operator's server by the gateway"
    with await guest.open(internet.other, 8080) as cut:
        assert await echoes(cut)
        await network.set_egress(SLOT, Egress.ALLOWLIST, (PYPI,))
        assert not await echoes(cut)


async def test_a_new_agent_keeps_what_was_let_out(
    guest: Guest, network: Network, internet: Internet, instance: str, nameserver: str
) -> None:
    await guest.resolve("pypi.example")
    with await guest.open(internet.public, 443) as kept:
        network.close()
        with pytest.raises(OSError, match="refused"):
            await guest.ask("pypi.example")
        restarted = Network(instance, (nameserver,))
        try:
            await restarted.ensure(SLOT, Egress.ALLOWLIST, machine_uid(instance, SLOT), (PYPI, WILD))
            assert await echoes(kept)
            assert await guest.reaches(internet.public), "the set is as it was"
            assert not await guest.reaches(internet.other)
            assert await guest.resolve("pypi.example") == [internet.public]
        finally:
            restarted.close()


async def echoes(sock: socket.socket) -> bool:
    """Whether what is sent comes back."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(1):
            await loop.sock_sendall(sock, b"x")
            return await loop.sock_recv(sock, 1) == b"x"
    except (TimeoutError, OSError):
        return False
