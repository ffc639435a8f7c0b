"""The health check against apps that answer, answer badly, late, or not at all."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

import pytest

from hosts.agent import health
from hosts.agent.health import check


@dataclass
class App:
    """A namespace with one app behind every port, which says `answer` to whatever it is asked."""

    answer: bytes
    name: str = "fake"
    asked: bytes = b""
    connections: int = 0

    async def connect(self, port: int, timeout_s: float) -> socket.socket:
        self.connections += 1
        if self.answer == b"refuse":
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(1)
        asyncio.get_running_loop().call_soon(self._serve, theirs)
        return ours

    def _serve(self, sock: socket.socket) -> None:
        if self.answer == b"silence":
            self.asked = b"held"
            asyncio.get_running_loop().call_later(0.3, sock.close)
            return
        self.asked = sock.recv(65536)
        sock.sendall(self.answer)
        sock.close()


async def ask(app: App, path: str = "", timeout_s: float = 0.25) -> str:
    unhealthy = await check(app, 8080, path=path, host="blog.localhost", timeout_s=timeout_s)
    return "" if unhealthy is None else unhealthy.message


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found", b"500 Oops", b"302 Found"])
async def test_without_a_path_any_answer_is_healthy(status: bytes) -> None:
    app = App(b"HTTP/1.1 " + status + b"\r\n\r\n")
    assert await ask(app) == ""
    assert app.asked.startswith(b"GET / HTTP/1.1\r\nHost: blog.localhost\r\n")


@pytest.mark.parametrize("status", [b"200 OK", b"204 No Content", b"301 Moved"])
async def test_with_a_path_2xx_and_3xx_are_healthy(status: bytes) -> None:
    app = App(b"HTTP/1.0 " + status + b"\r\n\r\n")
    assert await ask(app, "/healthz") == ""
    assert app.asked.startswith(b"GET /healthz HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\n", "status 503"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (b"HTTP/1.1 abc\r\n", "not HTTP"),
        (b"", "closed the connection without an HTTP answer"),
        (b"x" * 10_000, "not HTTP"),
        (b"refuse", "Connection refused"),
    ],
)
async def test_anything_else_is_asked_again_until_time_is_up_and_told(answer: bytes, says: str) -> None:
    app = App(answer)
    message = await ask(app, "/healthz")
    assert says in message
    assert message.startswith("GET /healthz on port 8080")
    assert app.connections > 1


async def test_silence_is_told_as_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ATTEMPT_TIMEOUT_S", 0.05)
    assert "no answer within" in await ask(App(b"silence"))
    await asyncio.sleep(0.35)
