"""Keeps one link and a few idle data connections to every edge, for ever.

Each edge has a loop of its own: an edge that is away costs redials with jittered, capped back-off and nothing
else. Open streams outlive a lost link, for they are connections of their own; idle ones do not.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Sequence

import structlog

from tunnel.dial.data import DataConnection, State, keep_alive
from tunnel.dial.limits import (
    CONNECT_TIMEOUT_S,
    DIAL_ATTEMPTS,
    DIALS_AT_ONCE,
    HELLO_TIMEOUT_S,
    MAX_DATA_CONNECTIONS,
    MAX_IDLE_CONNECTIONS,
    PING_EVERY_S,
    REDIAL_MAX_S,
    REDIAL_MIN_S,
    SILENCE_LIMIT_S,
)
from tunnel.dial.target import Handler
from tunnel.tasks import spawn
from tunnel.wire import (
    MAX_LINE_BYTES,
    Activity,
    HostHello,
    Kind,
    Need,
    Ping,
    Pong,
    Refused,
    WireError,
    decode_message,
    decode_welcome,
)

_log = structlog.get_logger(__name__)


class LinkClosed(Exception):  # noqa: N818 - it is what happened
    """The edge closed the link."""


class Dialer:
    """A host's side of the tunnel to all its edges."""

    def __init__(self, edges: Sequence[tuple[str, int]], host_id: str, token: str, handler: Handler) -> None:
        session = secrets.token_hex(16)
        self._edges = [_Edge(address, host_id, token, session, handler) for address in edges]

    async def run(self) -> None:
        """Hold the links until cancelled; then every link, idle connection and stream is closed."""
        try:
            async with asyncio.TaskGroup() as group:
                for edge in self._edges:
                    group.create_task(edge.run(), name=f"link-{edge.name}")
        finally:
            for edge in self._edges:
                edge.close()

    def linked(self) -> tuple[str, ...]:
        """The edges with a live link."""
        return tuple(edge.name for edge in self._edges if edge.linked)


class _Edge:
    def __init__(self, address: tuple[str, int], host_id: str, token: str, session: str, handler: Handler) -> None:
        self._address = address
        self.name = f"{address[0]}:{address[1]}"
        self.linked = False
        self._link_hello = HostHello(Kind.LINK, host_id, token, session)
        self._data_hello = HostHello(Kind.DATA, host_id, token, session)
        self._handler = handler
        self._connections: set[DataConnection] = set()  # idle and open
        self._idle: set[DataConnection] = set()  # those of them that are not yet opened
        self._dials = asyncio.Semaphore(DIALS_AT_ONCE)
        self._dialing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        delay_s = REDIAL_MIN_S
        said = ""
        while True:
            try:
                await self._hold_link()
            except (OSError, TimeoutError, LinkClosed, WireError, Refused) as e:
                reason = f"{type(e).__name__}: {e}"
            except Exception as e:  # noqa: BLE001 - this loop is every machine's way to the world
                _log.exception("link failed", edge=self.name)
                reason = f"{type(e).__name__}: {e}"
            if self.linked:
                delay_s, said = REDIAL_MIN_S, ""
                self._lost()
            if reason != said:  # an edge that stays away is said once, not every five seconds
                _log.warning("no link", edge=self.name, reason=reason)
                said = reason
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            delay_s = min(delay_s * 2, REDIAL_MAX_S)

    def close(self) -> None:
        """Close everything at once."""
        if self.linked:
            self._lost()
        for connection in list(self._connections):
            connection.close()

    def _lost(self) -> None:
        self.linked = False
        for task in list(self._dialing):
            task.cancel()
        for connection in list(self._idle):
            connection.close()
        self._handler.link_lost(self.name)

    async def _hold_link(self) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*self._address, limit=MAX_LINE_BYTES)
        try:
            keep_alive(writer.get_extra_info("socket"))
            writer.write(self._link_hello.encode())
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                edge = decode_welcome(await _read_line(reader)).edge
            self.linked = True
            _log.info("linked", edge=self.name, edge_name=edge)
            async with asyncio.TaskGroup() as group:
                pings = group.create_task(_ping(writer), name=f"ping-{self.name}")
                try:
                    await self._listen(reader, writer)
                except (OSError, TimeoutError, LinkClosed, WireError, Refused) as e:
                    ended: Exception = e
                pings.cancel()
            raise ended
        finally:
            writer.transport.abort()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                line = await _read_line(reader)
            match decode_message(line):
                case Activity(machine, in_flight, quiet):
                    self._handler.activity(self.name, machine, in_flight, quiet=quiet)
                case Need(n):
                    self._need(n)
                case Ping(t):
                    writer.write(Pong(t).encode())
                case _:
                    pass  # a pong only breaks the silence; unknown messages are a newer edge's

    def _need(self, n: int) -> None:
        dialing = len(self._dialing)
        room = min(
            MAX_IDLE_CONNECTIONS - len(self._idle) - dialing, MAX_DATA_CONNECTIONS - len(self._connections) - dialing
        )
        for _ in range(min(n, room)):
            task = spawn(self._dial(), name=f"dial-{self.name}")
            self._dialing.add(task)
            task.add_done_callback(self._dialing.discard)

    async def _dial(self) -> None:
        for attempt in range(DIAL_ATTEMPTS):
            if attempt:
                await asyncio.sleep(REDIAL_MIN_S * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            try:
                async with self._dials, asyncio.timeout(CONNECT_TIMEOUT_S):
                    _, connection = await asyncio.get_running_loop().create_connection(self._connection, *self._address)
            except (OSError, TimeoutError) as e:
                _log.warning("cannot dial a data connection", edge=self.name, reason=str(e))
                continue
            if connection.state is not State.CLOSED:
                self._connections.add(connection)
            if connection.state in (State.GREETING, State.IDLE):
                self._idle.add(connection)
            return

    def _connection(self) -> DataConnection:
        return DataConnection(self._data_hello, self._handler, on_opening=self._idle.discard, on_closed=self._on_closed)

    def _on_closed(self, connection: DataConnection) -> None:
        self._idle.discard(connection)
        self._connections.discard(connection)


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readline()
    except ValueError:  # how StreamReader says that its limit was passed
        raise WireError("line too long") from None
    if not line.endswith(b"\n"):
        raise LinkClosed("closed by the edge")
    return line


async def _ping(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(Ping(time.monotonic_ns() // 1_000_000).encode())
        await asyncio.sleep(PING_EVERY_S)
