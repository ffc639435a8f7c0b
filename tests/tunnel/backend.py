"""A real HTTP server on loopback that records what reaches it, byte for byte, and answers as it is told.

Requests are parsed by h11, which shares no code with the edge: what h11 sees is what an app would have seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import h11

Reply = Callable[["Visit"], Awaitable[None]]


@dataclass
class Seen:
    """One request as the backend parsed it."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytearray = field(default_factory=bytearray)
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    connection: int = 0
    complete: bool = False  # it was read to its end

    def values(self, name: bytes) -> list[bytes]:
        return [v for n, v in self.headers if n.lower() == name]


@dataclass
class Visit:
    """One request being answered."""

    seen: Seen
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parser: h11.Connection

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Everything to the end of the connection, past HTTP."""
        data, _ = self.parser.trailing_data
        while more := await self.reader.read(65536):
            data += more
        return data

    async def read_body(self) -> bytearray:
        """The rest of the request."""
        while True:
            event = self.parser.next_event()
            if event is h11.NEED_DATA:
                if self.parser.they_are_waiting_for_100_continue:
                    await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                    self.parser.send(h11.InformationalResponse(status_code=100, headers=[]))
                self.parser.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.Data):
                self.seen.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self.seen.complete = True
                self.seen.trailers = [(bytes(n), bytes(v)) for n, v in event.headers]
                return self.seen.body
            else:
                raise ConnectionResetError("the request was cut")


async def hello(visit: Visit) -> None:
    """The usual answer."""
    await visit.read_body()
    await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


class Backend:
    """The recording server. `replies` maps a path to what answers there; anything else says hello."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.raw: list[bytearray] = []  # what came, one item a connection
        self.errors: list[str] = []
        self.replies: dict[bytes, Reply] = {}
        self.port = 0
        self.open_connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_connections += 1
        raw = bytearray()
        self.raw.append(raw)
        try:
            await self._converse(_Recorder(reader, raw), writer, len(self.raw) - 1)
        except (ConnectionError, h11.RemoteProtocolError) as e:
            self.errors.append(str(e))
        except asyncio.CancelledError:
            pass
        finally:
            self.open_connections -= 1
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: _Recorder, writer: asyncio.StreamWriter, connection: int) -> None:
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=128 * 1024)
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(65536)
                if not data and parser.trailing_data[0] == b"" and parser.their_state is h11.IDLE:
                    return
                parser.receive_data(data)
                continue
            if not isinstance(event, h11.Request):
                return
            seen = Seen(
                bytes(event.method),
                bytes(event.target),
                [(bytes(n), bytes(v)) for n, v in event.headers.raw_items()],
                connection=connection,
            )
            self.requests.append(seen)
            visit = Visit(seen, reader, writer, parser)  # type: ignore[arg-type]
            await self.replies.get(seen.target.partition(b"?")[0], hello)(visit)
            if writer.is_closing() or parser.their_state is not h11.DONE:
                return
            # What we wrote was written past h11; tell it that this exchange is over.
            parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            parser.send(h11.EndOfMessage())
            if parser.our_state is not h11.DONE:
                return
            parser.start_next_cycle()


class _Recorder:
    def __init__(self, reader: asyncio.StreamReader, raw: bytearray) -> None:
        self._reader = reader
        self._raw = raw

    async def read(self, n: int) -> bytes:
        data = await self._reader.read(n)
        self._raw += data
        return data
