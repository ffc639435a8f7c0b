"""The app's own `after_resume`: told that time has passed, so that it can drop dead connections and reseed itself.

Either an executable the release brings, or BURROW_AFTER_RESUME: an HTTP path (POST, to be answered with any status
below 400) or a shell command. Bounded in time and never fatal: an app's mistake must not cost it its memory.
"""

from __future__ import annotations

import os
import socket

from hosts.guest.agent.app import HOOK_VARIABLE
from hosts.guest.agent.loop import READ
from hosts.guest.agent.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hosts.guest.agent.app import App
    from hosts.guest.agent.kernel import Kernel
    from hosts.guest.agent.loop import Loop

EXECUTABLE = "/app/.burrow/after_resume"
TIMEOUT_S = 2.0  # an app's after_resume hook


def run_hook(loop: Loop, kernel: Kernel, app: App, done: Callable[[str], None]) -> bool:
    """Start the hook, if there is one; `done` gets "" or what went wrong."""
    wanted = app.env.get(HOOK_VARIABLE, "") if app.phase == "running" else ""
    if wanted.startswith("/") and not os.access(wanted.split()[0], os.X_OK):
        HttpHook(loop, app, wanted, done)
        return True
    command = wanted or (EXECUTABLE if os.access(EXECUTABLE, os.X_OK) else "")
    if not command or app.phase != "running":
        return False

    def ended(code: int, output: str, *, timed_out: bool) -> None:
        if timed_out:
            done(f"after_resume took longer than {TIMEOUT_S:g} s")
        else:
            done("" if code == 0 else f"after_resume ended with {code}: {output[-200:].strip()}")

    Task(loop, kernel, app, command, TIMEOUT_S, ended)
    return True


class HttpHook:
    """One POST to the app, by hand: importing http.client at this moment would be most of the resume."""

    __slots__ = ("_done", "_loop", "_socket", "_timer")

    def __init__(self, loop: Loop, app: App, path: str, done: Callable[[str], None]) -> None:
        self._loop = loop
        self._done = done
        self._timer = loop.after(TIMEOUT_S, self._too_late)
        listener = next((s for s in app.listening if s.port == app.port()), None)
        address = listener.address if listener is not None else "127.0.0.1"
        address = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(address, address)  # noqa: S104
        self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket.connect((address, app.port() or app.wanted_port))
            request = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            self._socket.sendall(request.encode())
        except OSError as e:
            self._finish(f"after_resume POST {path}: {e}")
            return
        loop.watch(self._socket.fileno(), READ, self._answered)

    def _answered(self, _events: int) -> None:
        try:
            status = self._socket.recv(4096)[9:12]
        except OSError:
            status = b""
        self._finish("" if status.isdigit() and status < b"400" else f"after_resume was answered {status.decode()!r}")

    def _too_late(self) -> None:
        self._finish(f"after_resume took longer than {TIMEOUT_S:g} s")

    def _finish(self, problem: str) -> None:
        self._timer.cancel()
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._done(problem)
