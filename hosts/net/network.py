"""The network namespaces of this host's machines, one per slot.

A namespace is the anchor: made first, removed last, so whatever hangs on it is found by its name. It, its tap and the
agent's sockets in it outlive a machine's VMM, which is why a connection survives a sleep. A machine that may not go
out has no link to go out by; one with egress `allowlist` has a resolver in its namespace as well.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pyroute2.netlink.exceptions import NetlinkError

from hosts.net import firewall, links, namespaces
from hosts.net.addresses import (
    GUEST_ADDRESS,
    MAX_SLOTS,
    check_instance,
    check_slot,
    namespace_name,
    namespace_prefix,
    slot_of,
    uplink_name,
    uplink_prefix,
)
from hosts.net.leases import Leases
from hosts.net.resolver import Resolver, Upstream
from hosts.wire.allowlist import AllowedName
from hosts.wire.commands import OutboundName
from hosts.wire.spec import Egress

T = TypeVar("T")

SET_UP_THREADS = 4  # that set networks up
IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


class NetworkError(Exception):
    """A namespace could not be made, changed or removed; the text says what failed."""


class Namespace:
    """One machine's network namespace, held open."""

    def __init__(self, slot: int, name: str, fd: int) -> None:
        self.slot = slot
        self.name = name
        self.fd = fd

    async def connect(self, port: int, timeout_s: float) -> socket.socket:
        """A non-blocking TCP connection to the guest's port; OSError or TimeoutError."""
        async with asyncio.timeout(timeout_s):
            sock = await namespaces.inside_async(self.fd, _tcp_socket)
            try:
                await asyncio.get_running_loop().sock_connect(sock, (GUEST_ADDRESS, port))
            except BaseException:
                sock.close()
                raise
        return sock

    async def datagrams(self, port: int, timeout_s: float) -> socket.socket:
        """A non-blocking UDP socket to the guest's port; OSError or TimeoutError."""
        async with asyncio.timeout(timeout_s):
            sock = await namespaces.inside_async(self.fd, _udp_socket)
        try:
            sock.connect((GUEST_ADDRESS, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def close(self) -> None:
        """Let go of it; it stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Network:
    """All namespaces of one instance."""

    def __init__(self, instance: str, nameservers: tuple[str, ...]) -> None:
        self._instance = check_instance(instance)
        self._nameservers = nameservers
        self._upstream = Upstream(nameservers)
        self._resolvers: dict[int, Resolver] = {}
        self._held: dict[int, Namespace] = {}
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pool = ThreadPoolExecutor(max_workers=SET_UP_THREADS, thread_name_prefix="net")
        self._root = threading.Lock()  # one change of the root namespace at a time
        self._rules_stand = False

    def name_of(self, slot: int) -> str:
        """What the slot's namespace is called, whether it is there or not."""
        return namespace_name(self._instance, slot)

    async def ensure(self, slot: int, egress: Egress, uid: int, allow: tuple[AllowedName, ...] = ()) -> Namespace:
        """The slot's namespace, made or completed: tap for `uid`, addresses, rules, and an uplink and a resolver only
        where egress asks for them.
        """
        async with self._locks[check_slot(slot)]:
            fd = await self._run(self._make, slot, uid)
            held = self._held.get(slot)
            if held is not None:
                os.close(fd)
            else:
                held = self._held[slot] = Namespace(slot, namespace_name(self._instance, slot), fd)
            await self._set_egress(held, egress, allow)
            return held

    async def set_egress(self, slot: int, egress: Egress, allow: tuple[AllowedName, ...] = ()) -> None:
        """Change what may be reached, at once: what is established and no longer allowed is cut."""
        async with self._locks[check_slot(slot)]:
            held = self._held.get(slot)
            if held is None:
                raise NetworkError(f"no namespace for slot {slot}")
            await self._set_egress(held, egress, allow)

    def outbound(self, slot: int) -> tuple[OutboundName, ...]:
        """The names its machine asked for since this agent started, newest first."""
        resolver = self._resolvers.get(slot)
        return resolver.outbound.newest_first() if resolver else ()

    async def remove(self, slot: int) -> None:
        """Remove everything of the slot. Idempotent."""
        async with self._locks[check_slot(slot)]:
            if resolver := self._resolvers.pop(slot, None):
                resolver.close()
            if held := self._held.pop(slot, None):
                held.close()
            await self._run(self._destroy, slot)

    async def reclaim(self, keep: frozenset[int]) -> frozenset[int]:
        """Remove what this instance left behind in slots that are not kept; the slots something was removed of."""
        left = await self._run(self._slots_in_use) - keep
        for slot in sorted(left):
            await self.remove(slot)
        if not keep:
            await self._run(self._drop_rules_outside)
        return frozenset(left)

    def close(self) -> None:
        """Let go of everything; all namespaces stay."""
        for resolver in self._resolvers.values():
            resolver.close()
        for held in self._held.values():
            held.close()
        self._held.clear()
        self._pool.shutdown(wait=True)

    async def _run(self, work: Callable[..., T], *args: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)
        except (OSError, firewall.FirewallError, NetlinkError) as e:
            raise NetworkError(str(e)) from e

    def _make(self, slot: int, uid: int) -> int:
        name = namespace_name(self._instance, slot)
        namespaces.create(name)
        fd = namespaces.open_namespace(name)
        try:
            namespaces.inside(fd, lambda: links.set_up_inside(uid))
        except BaseException:
            os.close(fd)
            raise
        return fd

    async def _set_egress(self, held: Namespace, egress: Egress, allow: tuple[AllowedName, ...]) -> None:
        resolver = self._resolvers.get(held.slot)
        if egress is not Egress.ALLOWLIST:
            if resolver is not None:
                resolver.close()
                async with resolver.turn:
                    resolver.allow, resolver.leases = (), Leases()
            await self._run(self._apply, held, egress, firewall.rules_inside(self._nameservers, egress))
            return
        if resolver is None:
            resolver = self._resolvers[held.slot] = Resolver(self._upstream.ask)
        mark = firewall.mark_of(self._nameservers, allow)
        async with resolver.turn:
            resolver.allow = allow
            elements = resolver.leases.keep(allow, now=time.monotonic())
            rules = firewall.rules_inside(self._nameservers, egress, mark, elements)
            await self._run(self._apply, held, egress, rules, mark)
        try:
            await resolver.serve(held.fd)
        except OSError as e:
            raise NetworkError(f"resolver: {e}") from e

    def _apply(self, held: Namespace, egress: Egress, rules: str, mark: int = 0) -> None:
        """Rules before any way out, and the way out away before any other rules."""
        uplink = uplink_name(self._instance, held.slot)
        if egress is Egress.NONE:
            with self._root:
                links.delete_link(uplink)
        # Rules of the very same list are left as they stand, with the addresses a former agent's resolver has let out.
        if not (mark and namespaces.inside(held.fd, lambda: firewall.stands_inside(mark))):
            namespaces.inside(held.fd, lambda: firewall.apply(rules))
        if egress is Egress.NONE:
            return
        with self._root:
            if not self._rules_stand:
                firewall.apply(firewall.rules_outside(self._instance, self._nameservers))
                IP_FORWARD.write_text("1")
                self._rules_stand = True
            outer, inner = links.add_uplink(uplink, held.fd, first_choice=int(self._instance, 16) + held.slot)
        namespaces.inside(held.fd, lambda: links.use_uplink_inside(inner, outer))

    def _destroy(self, slot: int) -> None:
        with self._root:
            links.delete_link(uplink_name(self._instance, slot))
        namespaces.delete(namespace_name(self._instance, slot))

    def _slots_in_use(self) -> frozenset[int]:
        prefix = namespace_prefix(self._instance)
        named = {slot_of(name, prefix) for name in namespaces.names(prefix)}
        linked = links.link_names(uplink_prefix(self._instance))
        return frozenset(slot for slot in (*named, *linked) if slot is not None and slot < MAX_SLOTS)

    def _drop_rules_outside(self) -> None:
        with self._root:
            firewall.apply(firewall.no_rules_outside(self._instance))
            self._rules_stand = False


def _tcp_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _udp_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
