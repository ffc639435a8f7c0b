"""Control's way through an edge: publish routes, call a host agent's API, open a pipe to a machine.

Synchronous and standard library only, for it runs inside Django views and Celery tasks. It speaks to the edge's control
socket (wire/SPEC.md, section 1) and after OPENED it is plain HTTP/1.1, one request a stream.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from tunnel.wire import (
    MAX_LINE_BYTES,
    Code,
    OpenHello,
    Refused,
    Route,
    RoutesHello,
    RouteTable,
    ToHost,
    ToMachine,
    WireError,
    check_opened,
    decode_published,
)

CONNECT_TIMEOUT_S = 2.0  # control to an edge: a local Unix socket
SEND_BLOCK_BYTES = 256 * 1024  # of a body to a host, at a time
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # of request_host; longer answers are for stream_host


class EdgeUnavailable(Exception):  # noqa: N818 - it is what happened
    """No edge answers on its control socket."""


class HostUnavailable(Exception):  # noqa: N818 - it is what happened
    """The edge has no stream to that host or machine, or it broke: stable code, phase, one sentence."""

    def __init__(self, code: str, phase: str, message: str) -> None:
        super().__init__(f"{code} ({phase}): {message}" if phase else f"{code}: {message}")
        self.code = str(code)
        self.phase = phase
        self.message = message


class EdgeClient:
    """All edge workers of this installation, by their control sockets."""

    def __init__(self, sockets: Sequence[str | Path]) -> None:
        if not sockets:
            raise ValueError("no edge control socket given")
        self._sockets = tuple(str(s) for s in sockets)

    def publish_routes(self, generation: int, routes: Iterable[Route], *, timeout_s: float = 10.0) -> dict[str, int]:
        """Give every edge the whole table. Answers socket path -> generation that edge now has.

        An edge that is away is left out (it has its last table on disk, and gets the next one); if all are away,
        EdgeUnavailable.
        """
        lines = RoutesHello().encode() + RouteTable(generation, tuple(routes)).encode()
        found: dict[str, int] = {}
        problems: list[str] = []
        for path in self._sockets:
            try:
                with _connect(path, timeout_s) as sock:
                    sock.sendall(lines)
                    found[path] = decode_published(_read_line(sock))
            except OSError as e:
                problems.append(f"{path}: {e}")
        if not found:
            raise EdgeUnavailable("; ".join(problems))
        return found

    def request_host(
        self,
        host_id: str,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> tuple[int, bytes]:
        """One request to the host agent's API: status and whole answer. `timeout_s` bounds each single wait."""
        with self.stream_host(host_id, method, path, body, headers=headers, timeout_s=timeout_s) as response:
            with _told_apart():
                answer = response.read(MAX_ANSWER_BYTES + 1)
            if len(answer) > MAX_ANSWER_BYTES:
                raise HostUnavailable(Code.TUNNEL_BROKEN, "answer", f"answer of more than {MAX_ANSWER_BYTES} bytes")
            return response.status, answer

    @contextlib.contextmanager
    def stream_host(
        self,
        host_id: str,
        method: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Iterator[http.client.HTTPResponse]:
        """The same, but the answer's body is read by the caller as it comes."""
        sock = self._open(OpenHello(ToHost(host_id)), timeout_s)
        connection = http.client.HTTPConnection("burrow-host", timeout=timeout_s, blocksize=SEND_BLOCK_BYTES)
        connection.sock = sock
        try:
            with _told_apart():
                response = _exchange(connection, method, path, body, headers or {})
            yield response
        finally:
            connection.close()
            sock.close()

    def open_machine(self, machine: str, *, may_wake: bool, timeout_s: float = 90.0) -> socket.socket:
        """A byte pipe to the app's port. The caller closes it."""
        return self._open(OpenHello(ToMachine(machine, may_wake)), timeout_s)

    def _open(self, hello: OpenHello, timeout_s: float) -> socket.socket:
        away: list[str] = []
        refused: HostUnavailable | None = None
        for path in random.sample(self._sockets, len(self._sockets)):
            try:
                sock = _connect(path, timeout_s)
            except OSError as e:
                away.append(f"{path}: {e}")
                continue
            try:
                with _told_apart():
                    sock.sendall(hello.encode())
                    check_opened(_read_line(sock))
                return sock
            except HostUnavailable as e:
                sock.close()
                refused = e
                if e.code != Code.TUNNEL_NO_HOST:  # only then may another edge do better
                    raise
        if refused is not None:
            raise refused
        raise EdgeUnavailable("; ".join(away))


def _connect(path: str, timeout_s: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_TIMEOUT_S)
        sock.connect(path)
        sock.settimeout(timeout_s)
    except OSError:
        sock.close()
        raise
    return sock


def _read_line(sock: socket.socket) -> bytes:
    """One line and not a byte more: what follows belongs to the stream."""
    line = b""
    while not line.endswith(b"\n"):
        ahead = sock.recv(MAX_LINE_BYTES - len(line), socket.MSG_PEEK)
        if not ahead:
            raise ConnectionResetError("closed before the answer's line was complete")
        end = ahead.find(b"\n")
        line += sock.recv(len(ahead) if end < 0 else end + 1)
        if len(line) >= MAX_LINE_BYTES:
            raise WireError("line too long")
    return line


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | BinaryIO | None,
    headers: Mapping[str, str],
) -> http.client.HTTPResponse:
    given = {name.lower() for name in headers}
    connection.putrequest(method, path, skip_accept_encoding=True)
    connection.putheader("Connection", "close")
    length = _length(body)
    chunked = body is not None and length is None
    if body is not None:
        if chunked:
            connection.putheader("Transfer-Encoding", "chunked")
        else:
            connection.putheader("Content-Length", str(length))
        if "content-type" not in given:
            connection.putheader(
                "Content-Type", "application/json" if isinstance(body, bytes) else "application/octet-stream"
            )
    elif method not in ("GET", "HEAD"):
        connection.putheader("Content-Length", "0")
    for name, value in headers.items():
        connection.putheader(name, value)
    # An answer may come before the body is through (413, say): then sending breaks, and the answer is what counts.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.endheaders(body, encode_chunked=chunked)
    return connection.getresponse()


def _length(body: bytes | BinaryIO | None) -> int | None:
    if body is None or isinstance(body, bytes):
        return len(body or b"")
    try:
        return os.fstat(body.fileno()).st_size - body.tell()
    except (OSError, AttributeError):
        pass
    if body.seekable():
        here = body.tell()
        end = body.seek(0, os.SEEK_END)
        body.seek(here)
        return end - here
    return None


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    """Every way a stream can break, as HostUnavailable with a code of its own."""
    try:
        yield
    except Refused as e:
        raise HostUnavailable(e.code, e.phase, e.message) from None
    except TimeoutError as e:
        raise HostUnavailable(Code.TUNNEL_TIMEOUT, "answer", f"no answer in time: {e}") from e
    except (OSError, http.client.HTTPException, WireError) as e:
        raise HostUnavailable(Code.TUNNEL_BROKEN, "answer", f"{type(e).__name__}: {e}") from e
