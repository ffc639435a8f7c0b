"""Waits for the app to listen, and says what it found: the port, or why there is none.

Answers at once where PORT is served or the app has ended; a port the app chose itself is given a moment, in which the
one it was asked for may still come up beside it.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hosts.guest.agent.app import App
    from hosts.guest.agent.loop import Loop, Timer
    from hosts.guest.agent.server import Connection

POLL_S = 0.05  # between looks whether the app listens
SETTLE_S = 1.0  # a port other than the one wanted is taken after this
TAIL_LINES = 40  # of its log, if it never does


class Wait:
    """One `await_listening` under way."""

    __slots__ = ("_app", "_connection", "_deadline", "_first_seen", "_loop", "_timer")

    def __init__(self, loop: Loop, app: App, connection: Connection, timeout_s: float) -> None:
        self._loop = loop
        self._app = app
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s
        self._first_seen: float | None = None
        self._timer: Timer | None = None
        connection.on_close = self._abandon
        self._look()

    def _look(self) -> None:
        app = self._app
        app.look()
        now = time.monotonic()
        port = app.port()
        if port is not None:
            if self._first_seen is None:
                self._first_seen = now
            if port == app.wanted_port or now - self._first_seen >= SETTLE_S or now >= self._deadline:
                self._answer({"ok": True, "port": port, "listening": listening(app)})
                return
        elif app.phase in ("exited", "stopped", "idle"):
            self._answer(self._refusal("app:exited", _how_it_ended(app)))
            return
        elif now >= self._deadline:
            self._answer(
                self._refusal("check:not_listening", f"the app listens on no port; it was given PORT={app.wanted_port}")
            )
            return
        self._timer = self._loop.after(POLL_S, self._look)

    def _refusal(self, code: str, message: str) -> dict[str, object]:
        return {
            "ok": False,
            "code": code,
            "message": message,
            "listening": listening(self._app),
            "exit_code": self._app.exit_code,
            "log_tail": self._app.logs.tail(TAIL_LINES),
        }

    def _answer(self, message: dict[str, object]) -> None:
        self._connection.on_close = None
        self._connection.answer(message)

    def _abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def listening(app: App) -> list[list[object]]:
    """The app's listening sockets as the wire has them."""
    return [[s.address, s.port] for s in app.listening]


def _how_it_ended(app: App) -> str:
    if app.phase == "idle":
        return "no app was started"
    if app.exit_code is not None and app.exit_code < 0:
        return f"the app was killed by signal {-app.exit_code} before it listened on a port"
    return f"the app ended with exit code {app.exit_code} before it listened on a port"
