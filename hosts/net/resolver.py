"""The DNS resolver of one machine with egress `allowlist`: at its gateway, in its namespace, UDP and TCP.

It answers for allowed names only. A name that is not allowed is never asked upstream, so a question carries nothing
out; an address is in the namespace's set before the answer that names it is on its way; whatever fails, fails closed.
A guest may flood it: questions in flight, their rate, their size, connections and what is remembered are bounded.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable
from typing import cast

import dns.asyncquery
import dns.exception
import dns.message
import dns.rdatatype
import structlog

from hosts.net import answers, firewall, namespaces
from hosts.net.addresses import GATEWAY_ADDRESS
from hosts.net.answers import Addresses, NotAQuestion, Question
from hosts.net.leases import Leases
from hosts.net.outbound import Outbound
from hosts.wire.allowlist import AllowedName
from tunnel.tasks import spawn

log = structlog.get_logger(__name__)

DNS_PORT = 53
UPSTREAM_TIMEOUT_S = 3.0  # each server, before the next is tried
IN_FLIGHT_MAX = 32  # DNS questions of one machine
QUESTIONS_PER_S = 50.0  # of one machine, on average
BURST = 100.0  # and so many at once
CONNECTIONS_MAX = 8  # of one machine to its resolver
CONNECTION_IDLE_S = 5.0  # of them without a question
CONNECTION_MAX_S = 30.0  # of them in all
TCP_MAX_BYTES = 65_535  # of an answer

AskUpstream = Callable[[dns.message.QueryMessage], Awaitable[dns.message.Message]]


class Upstream:
    """The operator's name servers, one after the other."""

    def __init__(self, servers: tuple[str, ...], port: int = DNS_PORT) -> None:
        self._servers = servers
        self._port = port

    async def ask(self, query: dns.message.QueryMessage) -> dns.message.Message:
        """The first server's answer that comes; OSError if none does."""
        for server in self._servers:
            try:
                answer, _ = await dns.asyncquery.udp_with_fallback(
                    query,
                    server,
                    timeout=UPSTREAM_TIMEOUT_S,
                    port=self._port,
                    ignore_unexpected=True,
                    ignore_errors=True,  # a forged datagram must not end the wait for the real one
                )
            except (dns.exception.DNSException, OSError, EOFError) as e:
                log.warning("resolver.upstream", server=server, error=repr(e))
                continue
            return answer
        raise OSError(errno.EHOSTUNREACH, "no name server answered")


class Resolver:
    """One machine's resolver: its policy, its leases, its table of names and, while it serves, its sockets."""

    def __init__(self, ask: AskUpstream) -> None:
        self.outbound = Outbound()
        self.leases = Leases()
        self.allow: tuple[AllowedName, ...] = ()
        # A lease is granted, and the list changed, by one at a time: an answer of the old list must not come to a set
        # of the new one.
        self.turn = asyncio.Lock()
        self._ask = ask
        self._namespace = -1
        self._in_flight = 0
        self._tokens, self._counted_at = BURST, time.monotonic()
        self._connections = 0
        self._udp: asyncio.DatagramTransport | None = None
        self._tcp: asyncio.Server | None = None

    @property
    def serving(self) -> bool:
        """Whether it has sockets."""
        return self._udp is not None

    async def serve(self, namespace: int) -> None:
        """Listen in the namespace behind this descriptor, which stays open as long as it serves."""
        if self.serving:
            return
        self._namespace = namespace
        datagrams, listener = await namespaces.inside_async(namespace, _sockets)
        try:
            self._tcp = await asyncio.start_server(self._connection, sock=listener)
            self._udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(self), sock=datagrams
            )
        except BaseException:
            self.close()
            datagrams.close()
            listener.close()
            raise

    def close(self) -> None:
        """Answer nothing any more. What it knows stays."""
        if self._tcp is not None:
            self._tcp.close()
        if self._udp is not None:
            self._udp.close()
        self._tcp = self._udp = None

    def datagram(self, data: bytes, send: Callable[[bytes], None]) -> None:
        """One datagram of the guest's; over the bounds it is not answered, and its sender asks again."""
        if self._may_ask():
            self._in_flight += 1
            spawn(self._datagram(data, send), name="resolver")

    async def _datagram(self, data: bytes, send: Callable[[bytes], None]) -> None:
        try:
            message = await self.answer(data)
            if message is not None:
                send(answers.to_wire(message, answers.UDP_MAX_BYTES))
        finally:
            self._in_flight -= 1

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= CONNECTIONS_MAX:
            writer.close()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(CONNECTION_MAX_S):
                await self._converse(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(CONNECTION_IDLE_S):
                size = int.from_bytes(await reader.readexactly(2))
                if size > answers.QUERY_MAX_BYTES:
                    return
                data = await reader.readexactly(size)
            if not self._may_ask():
                return
            self._in_flight += 1
            try:
                message = await self.answer(data)
            finally:
                self._in_flight -= 1
            if message is None:
                return
            wire = answers.to_wire(message, TCP_MAX_BYTES)
            writer.write(len(wire).to_bytes(2) + wire)
            await writer.drain()

    def _may_ask(self) -> bool:
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._counted_at) * QUESTIONS_PER_S)
        self._counted_at = now
        if self._tokens < 1 or self._in_flight >= IN_FLIGHT_MAX:
            return False
        self._tokens -= 1
        return True

    async def answer(self, data: bytes) -> dns.message.Message | None:
        """The answer to a guest's bytes; None for what is no question."""
        try:
            question = answers.read(data)
        except NotAQuestion:
            return None
        allowed = self._ports_of(question.name)
        self.outbound.note(question.name, allowed=bool(allowed), now_ms=time.time_ns() // 1_000_000)
        if not allowed:
            return answers.refusal(question)
        if question.kind != dns.rdatatype.A:  # machines have no IPv6, and anything else leads somewhere unchecked
            return answers.reply(question, Addresses((), answers.TTL_MIN_S))
        try:
            addresses = answers.addresses_in(await self._ask(answers.to_ask(question)), question)
        except OSError:
            return answers.failure(question)
        if addresses is None:
            return answers.failure(question)
        return await self._let_out(question, addresses)

    async def _let_out(self, question: Question, addresses: Addresses) -> dns.message.Message:
        async with self.turn:
            ports = self._ports_of(question.name)  # the list may have changed while upstream was asked
            if not ports or not self.serving:
                return answers.refusal(question)
            try:
                rules = self.leases.grant(question.name, ports, addresses.found, addresses.ttl_s, now=time.monotonic())
                if rules:
                    await namespaces.inside_async(self._namespace, lambda: firewall.apply(rules))
            except (OSError, ValueError, firewall.FirewallError) as e:
                log.warning("resolver.lease", name=question.name, error=str(e))
                self.leases.revoke(question.name)  # what nft was not told must not count as known
                return answers.failure(question)
        return answers.reply(question, addresses)

    def _ports_of(self, name: str) -> tuple[int, ...]:
        return tuple(dict.fromkeys(p for allowed in self.allow if allowed.covers(name) for p in allowed.ports))


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's own is no subclass of it

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._resolver.datagram(data, lambda wire: self._send(wire, addr))

    def _send(self, wire: bytes, addr: tuple[str, int]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(wire, addr)


def _sockets() -> tuple[socket.socket, socket.socket]:
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        datagrams.bind((GATEWAY_ADDRESS, DNS_PORT))
        listener = socket.create_server((GATEWAY_ADDRESS, DNS_PORT), backlog=CONNECTIONS_MAX)
    except BaseException:
        datagrams.close()
        raise
    return datagrams, listener
