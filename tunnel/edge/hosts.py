"""The hosts linked to this edge, with the data connections each holds ready.

A host has one session at a time, the newest: its link and its data connections come and go with it. Open streams are
connections of their own and outlive a lost link.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import structlog

from tunnel.edge.limits import HOST_AWAY_S, IDLE_CONNECTIONS, NEED_EXPIRES_S
from tunnel.edge.pipes import Pipe
from tunnel.wire import Activity, Code, Message, Need, Refused

_log = structlog.get_logger(__name__)


class Link(Protocol):
    """The control connection of one host."""

    def send(self, message: Message) -> None: ...

    def close(self) -> None: ...

    def check(self, now: float) -> None: ...


class Host:
    """One host's session, if it has one."""

    def __init__(self, host_id: str, now: float) -> None:
        self.id = host_id
        self.session = ""
        self.link: Link | None = None
        self._linked = asyncio.Event()
        self._away_since = now
        self._idle: list[Pipe] = []
        self._waiters: deque[asyncio.Future[Pipe]] = deque()
        self._asked = 0  # connections asked for that have not come yet
        self._asked_at = now

    def linked(self, link: Link, session: str) -> None:
        """The host dialed in; an older link of it, of whichever session, is over."""
        if self.link is not None:
            _log.warning("host linked again", host=self.id, same_session=session == self.session)
            self.link.close()
        self._drop_idle()
        self.link, self.session = link, session
        self._asked = 0
        self._linked.set()
        self._replenish()

    def lost(self, link: Link, now: float) -> None:
        """The link ended."""
        if self.link is link:
            self.link = None
            self._linked.clear()
            self._away_since = now
            self._drop_idle()

    def offer(self, pipe: Pipe) -> None:
        """A data connection came."""
        self._asked = max(0, self._asked - 1)
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(pipe)
                return
        self._idle.append(pipe)

    async def take(self) -> Pipe:
        """A data connection, once there is one. The caller bounds the wait; a host that is away for long is refused."""
        if self.link is None:
            await self._wait_for_link()
        while self._idle:
            pipe = self._idle.pop()
            if not pipe.closed:
                self._replenish()
                return pipe
        waiter: asyncio.Future[Pipe] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._replenish()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.offer(waiter.result())
            raise

    def check(self, now: float) -> None:
        """Called about once a second."""
        if self._asked and now - self._asked_at > NEED_EXPIRES_S:
            self._asked = 0
        self._idle = [pipe for pipe in self._idle if not pipe.closed]
        self._replenish()
        if self.link is not None:
            self.link.check(now)

    async def _wait_for_link(self) -> None:
        remaining_s = HOST_AWAY_S - (asyncio.get_running_loop().time() - self._away_since)
        try:
            async with asyncio.timeout(max(0.0, remaining_s)):
                await self._linked.wait()
        except TimeoutError:
            raise Refused(Code.TUNNEL_NO_HOST, "link", f"Host {self.id} is not connected.") from None

    def _replenish(self) -> None:
        if self.link is None:
            return
        have = len(self._idle) + self._asked
        want = len(self._waiters) + IDLE_CONNECTIONS
        if have < want - IDLE_CONNECTIONS // 2:  # top up in batches: one message for several connections
            self._asked += want - have
            self._asked_at = asyncio.get_running_loop().time()
            self.link.send(Need(want - have))

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for pipe in idle:
            pipe.close()


class Hosts:
    """Every host that was ever asked for or came by itself."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._started = asyncio.get_running_loop().time()

    def get(self, host_id: str) -> Host:
        """The host of this id. One never seen counts as away since this edge started."""
        host = self._hosts.get(host_id)
        if host is None:
            host = self._hosts[host_id] = Host(host_id, self._started)
        return host

    def find(self, host_id: str) -> Host | None:
        """The host of this id, if it was ever seen."""
        return self._hosts.get(host_id)

    def tell(self, host_id: str, machine: str, in_flight: int, quiet: bool) -> None:  # noqa: FBT001 - `activity.Send`
        """Send an activity message, if the host is linked."""
        host = self._hosts.get(host_id)
        if host is not None and host.link is not None:
            host.link.send(Activity(machine, in_flight, quiet))

    def check(self, now: float) -> None:
        for host in self._hosts.values():
            host.check(now)

    def linked(self) -> list[str]:
        """The hosts with a live link."""
        return [host.id for host in self._hosts.values() if host.link is not None]

    def counts(self) -> tuple[int, int]:
        """Hosts with a live link, and known ones without."""
        hosts = list(self._hosts.values())
        linked = sum(host.link is not None for host in hosts)
        return linked, len(hosts) - linked

    def close(self) -> None:
        for host in self._hosts.values():
            if host.link is not None:
                host.link.close()
