"""Asks a freshly started app for its health: one plain HTTP GET at a time until it answers well or time is up."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Protocol

ATTEMPT_TIMEOUT_S = 20.0  # one attempt; the first request of a Python app under TCG imports half the world
RETRY_S = 0.1  # between attempts
MAX_STATUS_LINE_BYTES = 4096  # of the app's first answer


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """The app did not answer well within the time; what it did instead, for a person."""

    message: str


class Reach(Protocol):
    """The way to the app: `Namespace`, or as much of it as is needed here."""

    async def connect(self, port: int, timeout_s: float) -> socket.socket: ...


async def check(namespace: Reach, port: int, *, path: str, host: str, timeout_s: float) -> Unhealthy | None:
    """None once the app is healthy. Without a path any HTTP answer will do; with one it must be 2xx or 3xx."""
    last = "it did not answer"
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                        status = await _ask(namespace, port, path or "/", host)
                except TimeoutError:
                    last = f"no answer within {ATTEMPT_TIMEOUT_S:.0f} s"
                except (OSError, ValueError) as e:
                    last = str(e) or type(e).__name__
                else:
                    if not path or 200 <= status < 400:
                        return None
                    last = f"status {status}"
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        return Unhealthy(f"GET {path or '/'} on port {port} for {timeout_s:.0f} s, last: {last}")


async def _ask(namespace: Reach, port: int, path: str, host: str) -> int:
    sock = await namespace.connect(port, ATTEMPT_TIMEOUT_S)
    try:
        head = (
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "User-Agent: burrow-health",
            "Accept: */*",
            "Connection: close",
        )
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, "\r\n".join((*head, "", "")).encode("ascii"))
        return _status(await _first_line(loop, sock))
    finally:
        sock.close()


async def _first_line(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
    data = b""
    while b"\n" not in data:
        more = await loop.sock_recv(sock, MAX_STATUS_LINE_BYTES)
        data += more
        if not more or len(data) > MAX_STATUS_LINE_BYTES:
            raise ValueError(
                "it closed the connection without an HTTP answer" if not data else "its answer is not HTTP"
            )
    return data.split(b"\n", 1)[0]


def _status(line: bytes) -> int:
    version, _, rest = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise ValueError("its answer is not HTTP")
    return int(rest[:3])
