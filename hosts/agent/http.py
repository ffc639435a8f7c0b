"""A small strict HTTP/1.1 server for the agent's API: one request per connection, bounded in every direction.

Bytes are parsed by llhttp (httptools); a body is read only as fast as its consumer takes it, so an upload that goes
to disk fills no memory. It listens on a Unix socket nobody but root and the edge's streams reach, yet what arrives is
treated as a stranger's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import httptools
import structlog

from hosts.wire.codec import encode
from hosts.wire.commands import ErrorBody

log = structlog.get_logger(__name__)

HEAD_TIMEOUT_S = 10.0  # a request's head to the agent's API
BODY_IDLE_TIMEOUT_S = 30.0  # no byte of a body that is wanted
ANSWER_TIMEOUT_S = 30.0  # control takes nothing of an answer
MAX_HEAD_BYTES = 16 * 1024  # of a request to the agent's API
MAX_HEADERS = 100  # of a request to the agent's API
MAX_JSON_BYTES = 1024 * 1024  # of a JSON body
READ_BYTES = 64 * 1024
LINGER_S = 2.0  # reading off a body nobody wants
MAX_LINGER_BYTES = 4 * 1024 * 1024  # and at most so much of it
MAX_CONNECTIONS = 128  # to the agent's API
BACKLOG = 64  # connections the kernel holds until they are accepted


class ApiError(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(code, message)


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; bodies are always JSON."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK


class _BadRequest(Exception):  # noqa: N818 - reads as the fact it states
    pass


@dataclass(slots=True)
class _Parsed:
    """What httptools calls back with."""

    target: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    head_bytes: int = 0
    head_done: bool = False
    complete: bool = False
    body: list[bytes] = field(default_factory=list)

    def on_url(self, url: bytes) -> None:
        self.target += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        key = name.decode("latin-1").lower()
        if key in self.headers or len(self.headers) >= MAX_HEADERS:
            raise _BadRequest("a repeated header, or too many of them")
        self.headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.head_done = True

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.complete = True

    def _count(self, size: int) -> None:
        self.head_bytes += size
        if self.head_bytes > MAX_HEAD_BYTES:
            raise _BadRequest("headers too large")


class Request:
    """One request, its body not yet read."""

    def __init__(self, method: str, parsed: _Parsed, more: Callable[[], Awaitable[None]]) -> None:
        self._parsed = parsed
        self._more = more
        self.method = method
        parts = urlsplit(parsed.target.decode("ascii", errors="strict"))
        self.segments = tuple(unquote(s, errors="strict") for s in parts.path.split("/")[1:])
        self.query = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=20)
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        while True:
            pieces, self._parsed.body = self._parsed.body, []
            for piece in pieces:
                yield piece
            if self._parsed.complete:
                return
            await self._more()

    async def body(self, limit: int = MAX_JSON_BYTES) -> bytes:
        """The whole body of a JSON request."""
        data = bytearray()
        async for piece in self.chunks():
            data += piece
            if len(data) > limit:
                raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "wire:bad_message", f"a body over {limit} bytes")
        return bytes(data)


Handler = Callable[[Request], Awaitable[Answer]]


class ApiServer:
    """Listens on `path` and gives every request to `handler`."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Bind (over a socket file left behind) and accept."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=READ_BYTES, backlog=BACKLOG)
        self._path.chmod(0o600)

    async def close(self) -> None:
        """Accept no more. Requests under way are left to their time-outs."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._slots:
                answer = await self._answer(reader, writer)
                if answer is not None:
                    writer.write(_render(answer))
                    async with asyncio.timeout(ANSWER_TIMEOUT_S):
                        await writer.drain()
                    await _let_it_finish(reader, writer)
        except (OSError, TimeoutError):
            pass  # the caller is gone or does not read: nobody is left to tell
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer | None:
        parsed = _Parsed()
        parser = httptools.HttpRequestParser(parsed)

        async def more() -> None:
            async with asyncio.timeout(BODY_IDLE_TIMEOUT_S):
                data = await reader.read(READ_BYTES)
            if not data:
                raise ConnectionResetError("the caller closed in the middle of its request")
            _feed(parser, data)

        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                while not parsed.head_done:
                    data = await reader.read(READ_BYTES)
                    if not data:
                        return None
                    _feed(parser, data)
            if parser.get_http_version() != "1.1":
                raise _BadRequest("HTTP/1.1 only")
            try:
                request = Request(parser.get_method().decode("ascii"), parsed, more)
            except ValueError:
                raise _BadRequest("a malformed request target") from None
            if parsed.headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return await self._handler(request)
        except _BadRequest as e:
            return _error(ApiError(HTTPStatus.BAD_REQUEST, "wire:bad_message", str(e)))
        except ApiError as e:
            return _error(e)
        except (OSError, TimeoutError):
            raise
        except Exception:  # the loop that must not die: one broken request is an answer, not the end of the API
            log.exception("api.bug")
            return _error(
                ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "host:bug", "the host agent failed on this request")
            )


async def _let_it_finish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closing over unread bytes would reset the connection and take the answer with it: read on for a moment."""
    writer.write_eof()
    async with asyncio.timeout(LINGER_S):
        for _ in range(MAX_LINGER_BYTES // READ_BYTES):
            if not await reader.read(READ_BYTES):
                return


def _feed(parser: httptools.HttpRequestParser, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        raise _BadRequest("no upgrades here") from None
    except httptools.HttpParserCallbackError as e:
        if isinstance(e.__context__, _BadRequest):
            raise e.__context__ from None
        raise
    except httptools.HttpParserError as e:
        raise _BadRequest(f"not HTTP: {e}") from None


def _error(error: ApiError) -> Answer:
    return Answer(encode(error.body), error.status)


def _render(answer: Answer) -> bytes:
    return (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    ).encode() + answer.body
