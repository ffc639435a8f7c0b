"""A running box as its users meet it: the API, a git push, and bytes through the edge. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
API_TIMEOUT_S = 120
PUSH_TIMEOUT_S = 900
FIRST_BYTE_TIMEOUT_S = 120
STATE_POLL_S = 0.05


class BoxDown(Exception):  # noqa: N818 - reads as the fact it states
    """There is no running box to measure."""


@dataclass(frozen=True, slots=True)
class Push:
    """What a git push came to."""

    ok: bool
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class Box:
    """What deploy/up wrote for scripts."""

    api: str
    token: str

    @classmethod
    def running(cls) -> Box:
        """The box of this checkout, or BoxDown."""
        try:
            described = json.loads((ROOT / "var/burrow.json").read_text(encoding="utf-8"))
            box = cls(api=described["api"].rstrip("/"), token=described["token"])
            box.call("GET", "/apps")
        except (OSError, ValueError, KeyError) as e:
            raise BoxDown(f"no running box in this checkout; run deploy/up first ({e})") from e
        return box

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One API call; raises urllib.error.HTTPError on anything but 2xx."""
        request = urllib.request.Request(
            self.api + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=API_TIMEOUT_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as e:
            e.close()  # it holds the connection, and who catches it looks at its code only
            raise
        return json.loads(text) if text else None

    @contextlib.contextmanager
    def app(self, name: str, **settings: object) -> Iterator[dict[str, Any]]:
        """A new app of that name (an old one is deleted first), deleted again at the end."""
        self.delete(name)
        created = self.call("POST", "/apps", {"name": name})
        if settings:
            created = self.call("PATCH", f"/apps/{name}", settings)
        try:
            yield created
        finally:
            self.delete(name)

    def delete(self, name: str) -> None:
        """Delete the app if there is one."""
        with contextlib.suppress(urllib.error.HTTPError):
            self.call("DELETE", f"/apps/{name}")

    def push(self, git_url: str, source: Path) -> Push:
        """Push the files under `source` to main with a real git; forced: each push is a history of its own."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True)
            env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}

            def git(*argv: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    ["git", *argv],
                    cwd=folder,
                    env=env,
                    capture_output=True,
                    text=True,
                    timeout=PUSH_TIMEOUT_S,
                    check=False,
                )

            git("init", "-q", "-b", "main")
            git("add", ".")
            git("-c", "user.name=bench", "-c", "user.email=bench@example.test", "commit", "-qm", "bench")
            started = time.monotonic()
            done = git("push", git_url.replace("://", f"://token:{self.token}@", 1), "+main")
            return Push(ok=done.returncode == 0, seconds=time.monotonic() - started, output=done.stderr)

    def sleep(self, name: str, to: str) -> float:
        """Put the app to sleep that deep; seconds until the API answered."""
        started = time.monotonic()
        self.call("POST", f"/apps/{name}/sleep", {"to": to})
        return time.monotonic() - started

    def wait_state(self, name: str, state: str, limit_s: float = 60) -> None:
        """Wait until the API shows the state, or TimeoutError."""
        deadline = time.monotonic() + limit_s
        while (seen := self.call("GET", f"/apps/{name}")["state"]) != state:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: wanted {state}, is {seen}")
            time.sleep(STATE_POLL_S)


def first_byte(url: str, path: str = "/") -> float:
    """Seconds from connecting (to loopback, whatever the resolver says) to the first byte of a 200 answer."""
    parts = urlsplit(url)
    port = parts.port or 80
    request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=FIRST_BYTE_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        head = connection.recv(4096)
        seconds = time.monotonic() - started
        if not head.startswith(b"HTTP/1.1 200"):
            raise http.client.HTTPException(f"{url}: {head[:80]!r}")
        while connection.recv(65536):
            pass
    return seconds
