"""One edge worker: its three listeners, its clock, and its orderly end.

At SIGTERM nothing new is taken, idle connections close, and what is in flight (upgraded connections too) is finished
within the drain time; links stay up meanwhile, for the bytes in flight go through the hosts they belong to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from tunnel.config import EdgeConfig
from tunnel.edge.access import AccessLog
from tunnel.edge.activity import Activity
from tunnel.edge.control import ControlConnection, ControlConnections
from tunnel.edge.core import Core
from tunnel.edge.hosts import Hosts
from tunnel.edge.limits import (
    ACTIVITY_EVERY_S,
    CLIENT_KEEPALIVE_COUNT,
    CLIENT_KEEPALIVE_IDLE_S,
    CLIENT_KEEPALIVE_INTERVAL_S,
    KEPT_IDLE_S,
    KEPT_PER_MACHINE,
    SWEEP_EVERY_S,
)
from tunnel.edge.links import HostConnection
from tunnel.edge.listener import ClientConnection
from tunnel.edge.metrics import EdgeMetrics, MetricsServer
from tunnel.edge.pages import Pages
from tunnel.edge.pipes import KeptPipes
from tunnel.edge.router import Router
from tunnel.edge.status import States
from tunnel.edge.streams import Streams
from tunnel.edge.wakes import Wakes
from tunnel.tasks import spawn

BACKLOG = 4096  # connections the kernel holds until they are accepted
CONTROL_SOCKET_MODE = 0o660
DRAIN_POLL_S = 0.05  # between looks whether all is drained

_log = structlog.get_logger(__name__)


class Edge:
    """A running edge worker."""

    def __init__(self, config: EdgeConfig, *, access: AccessLog | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
        self._hosts = Hosts()
        router = Router(config.state / f"{config.name}.routes.json")
        streams = Streams(self._hosts, config.limits)
        states, activity = States(streams), Activity(self._hosts.tell)
        kept = KeptPipes(per_key=KEPT_PER_MACHINE, idle_s=KEPT_IDLE_S)
        self.core = Core(
            router=router,
            streams=streams,
            states=states,
            wakes=Wakes(streams, states, activity, kept),
            kept=kept,
            activity=activity,
            access=access or AccessLog(),
            pages=Pages(),
            limits=config.limits,
            ports=config.public_ports,
            trusted=config.trusted_proxies,
            cookie_suffix=config.preview_domain.encode(),
            time=loop.time,
            now=loop.time(),
        )
        self._control = ControlConnections(router, streams)
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.Task[None] | None = None
        self._metrics = MetricsServer(EdgeMetrics(self.core, self._hosts)) if config.metrics is not None else None
        self.http_port = 0
        self.link_port = 0

    async def start(self) -> None:
        """Load the last routes and listen. Whoever has the port already is said by the OSError."""
        loop = asyncio.get_running_loop()
        config, core = self._config, self.core
        core.router.load()
        if config.metrics is not None and self._metrics is not None:
            await self._metrics.start(config.metrics)
        links = await loop.create_server(self._host_connection, *config.link, backlog=BACKLOG)
        self._servers.append(links)
        self.link_port = links.sockets[0].getsockname()[1]
        self._servers.append(await self._listen_control(config.control_socket))
        http = await loop.create_server(lambda: ClientConnection(core), *config.http, backlog=BACKLOG)
        for sock in http.sockets:
            _keep_alive(sock)
        self._servers.append(http)
        self.http_port = http.sockets[0].getsockname()[1]
        core.ports = core.ports | {self.http_port}
        self._sweeper = spawn(self._sweep(), name="edge-sweep")
        _log.info(
            "edge up",
            name=config.name,
            http=f"{config.http[0]}:{self.http_port}",
            link=f"{config.link[0]}:{self.link_port}",
            generation=core.router.generation,
            routes=len(core.router),
        )

    async def stop(self) -> None:
        """Drain, then close everything."""
        core = self.core
        core.draining = True
        for server in self._servers[1:]:  # hosts may still link: in-flight requests need data connections
            server.close()
        for client in list(core.clients):
            client.drain()
        give_up = asyncio.get_running_loop().time() + self._config.limits.drain_s
        while core.clients and asyncio.get_running_loop().time() < give_up:  # noqa: ASYNC110 - rare, and it watches a clock
            await asyncio.sleep(DRAIN_POLL_S)
        if core.clients:
            _log.warning("drain time is up", cut=len(core.clients))
        if self._sweeper is not None:
            self._sweeper.cancel()
        for client in list(core.clients):
            client.transport.abort()
        for connection in list(self._control):
            connection.close()
        core.wakes.close()
        core.kept.close()
        core.activity.flush()
        self._servers[0].close()
        self._hosts.close()
        self._config.control_socket.unlink(missing_ok=True)
        if self._metrics is not None:
            await self._metrics.stop()
        await asyncio.sleep(DRAIN_POLL_S)  # lets closed connections say so
        core.access.close()
        _log.info("edge down", name=self._config.name)

    @property
    def metrics_port(self) -> int:
        """Where its numbers are served; 0 if they are not."""
        return self._metrics.port if self._metrics is not None else 0

    def linked_hosts(self) -> list[str]:
        """The hosts with a live link to this worker."""
        return self._hosts.linked()

    def _host_connection(self) -> HostConnection:
        return HostConnection(
            self._hosts, self._config.link_token, self._config.name, on_linked=self.core.activity.repeat
        )

    async def _listen_control(self, path: Path) -> asyncio.Server:
        _make_way(path)
        before = os.umask(0o777 & ~CONTROL_SOCKET_MODE)
        try:
            return await asyncio.get_running_loop().create_unix_server(
                lambda: ControlConnection(self._control), str(path)
            )
        finally:
            os.umask(before)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        core = self.core
        activity_at = 0.0
        while True:
            core.now = now = loop.time()
            for client in list(core.clients):
                client.check(now)
            core.kept.sweep(now)
            self._hosts.check(now)
            core.access.flush()
            if now - activity_at >= ACTIVITY_EVERY_S:
                activity_at = now
                core.activity.update()
            await asyncio.sleep(SWEEP_EVERY_S)


def _keep_alive(listening: socket.socket) -> None:
    """Accepted connections inherit it: a client that vanished must not keep its app awake for ever."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, CLIENT_KEEPALIVE_IDLE_S)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, CLIENT_KEEPALIVE_INTERVAL_S)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CLIENT_KEEPALIVE_COUNT)


def _make_way(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):  # an earlier edge's, killed before it could remove it
            path.unlink()


@contextlib.asynccontextmanager
async def running(config: EdgeConfig, *, access: AccessLog | None = None) -> AsyncIterator[Edge]:
    """An edge that is up inside the block."""
    edge = Edge(config, access=access)
    await edge.start()
    try:
        yield edge
    finally:
        await edge.stop()
