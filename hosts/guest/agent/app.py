"""The app: started, watched, restarted with a growing delay, found by the ports it listens on.

Phases: idle -> running -> (it ended) backoff -> running; exited when it ended before it ever listened, since starting
it again would only hide why; stopped when the host asked. While it runs, a forward exists for each loopback-only port.
"""

from __future__ import annotations

import json
import os
import signal
import time

from hosts.guest.agent import sockets
from hosts.guest.agent.child import Child, report
from hosts.guest.agent.forward import Forward
from hosts.guest.agent.logring import LogRing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hosts.guest.agent.kernel import Kernel
    from hosts.guest.agent.loop import Loop, Timer

GROUP = "app"
HOOK_VARIABLE = "BURROW_AFTER_RESUME"
FIRST_BACKOFF_S = 0.5  # before an app that ended is started again; doubled each time
MAX_BACKOFF_S = 30.0  # and no longer than this
STEADY_S = 60.0  # having run this long, the next end starts over at the first delay
LOOK_S = 2.0  # how often ports are looked at when nobody waits for one
PATH = "/app/.venv/bin:/app/node_modules/.bin:/run/burrow-bin:/usr/local/bin:/usr/bin:/bin"
HOME = "/home/app"


class App:
    """The machine's one app."""

    __slots__ = (
        "_backoff_s",
        "_child",
        "_forwards",
        "_hook_mark",
        "_kernel",
        "_look",
        "_loop",
        "_on_change",
        "_outside",
        "_restart",
        "_saved",
        "_started_at",
        "exit_code",
        "listened",
        "listening",
        "logs",
        "phase",
        "request",
        "restarts",
    )

    def __init__(self, loop: Loop, kernel: Kernel, outside: str, saved: str, hook_mark: str) -> None:
        self._loop = loop
        self._kernel = kernel
        self._outside = outside  # the address forwards listen on
        self._saved = saved  # where the start request is kept, for an agent that has to start over
        self._hook_mark = hook_mark  # an executable file once the app has named a hook
        self._child: Child | None = None
        self._forwards: dict[int, Forward] = {}
        self._look: Timer | None = None
        self._restart: Timer | None = None
        self._backoff_s = FIRST_BACKOFF_S
        self._started_at = 0.0
        self._on_change: list[Callable[[], None]] = []
        self.request: dict[str, object] = {}
        self.phase = "idle"
        self.exit_code: int | None = None
        self.restarts = 0
        self.listened = False  # this start has been seen listening
        self.listening: list[sockets.Listener] = []
        self.logs = LogRing()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self.phase == "running" else None

    @property
    def wanted_port(self) -> int:
        port = self.request.get("port", 0)
        return port if isinstance(port, int) else 0

    @property
    def env(self) -> dict[str, str]:
        """The process environment: the app's own variables win, except PORT, by which it is found."""
        given = self.request.get("env")
        own = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
        env = {
            "PATH": PATH,
            "HOME": HOME,
            "USER": "app",
            "LANG": "C.UTF-8",
            "HOST": "0.0.0.0",  # noqa: S104 - the machine's namespace is its fence
            "PYTHONUNBUFFERED": "1",
            "NODE_ENV": "production",
            **own,
            "PORT": str(self.wanted_port),
        }
        public = own.get("BURROW_PUBLIC_HOST", "")
        if public:
            # Vite refuses hosts it was not told of, and every preview has one it cannot know.
            env.setdefault("__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS", public)
        return env

    def start(self, request: dict[str, object]) -> None:
        """Start the app, or raise ValueError if another one runs."""
        if self.phase in ("running", "backoff"):
            if request == self.request:
                return
            raise ValueError("another app was started in this machine already")
        self.request = request
        with open(os.open(self._saved, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(request, file)
        self._mark_hook()
        self.restarts = 0
        self._backoff_s = FIRST_BACKOFF_S
        self.listened = False
        self._kernel.confine(GROUP)
        self._spawn()

    def _mark_hook(self) -> None:
        """Tell the responder, who asks for nothing but an executable, that the app named a hook of its own."""
        if HOOK_VARIABLE in self.env:
            os.close(os.open(self._hook_mark, os.O_WRONLY | os.O_CREAT, 0o700))

    def start_again(self) -> None:
        """After the agent itself was restarted: the app's output pipe is lost, so the app is started anew."""
        try:
            with open(self._saved) as file:
                request = json.load(file)
        except FileNotFoundError:
            return
        report("the agent was restarted; starting the app again")
        self._kernel.kill_group(GROUP)
        self.logs.note("[burrow] the guest agent was restarted, and the app with it")
        self.start(request)
        self.listened = True

    def stop(self, grace_s: float, done: Callable[[], None]) -> None:
        """SIGTERM, after the grace SIGKILL; `done` once it has ended."""
        if self._restart is not None:
            self._restart.cancel()
        child = self._child
        running = self.phase == "running"
        self.phase = "stopped"
        if child is None or not running:
            self._changed()
            done()
            return
        child.signal(signal.SIGTERM)
        kill = self._loop.after(grace_s, child.kill)

        def ended() -> None:
            if child.exit_code is not None:
                kill.cancel()
                self.unwatch(ended)
                done()

        self.watch(ended)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back at every change of phase or ports, until `unwatch`."""
        self._on_change.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        if callback in self._on_change:
            self._on_change.remove(callback)

    def look(self) -> None:
        """Read the listening sockets and let the forwards follow."""
        if self.phase != "running":
            return
        found = sockets.listeners(sockets.read_tables(), self._kernel.app_uid)
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.after(LOOK_S, self.look)
        if found == self.listening:
            return
        self.listening = found
        if found:
            self.listened = True
        self._follow(sockets.loopback_only(found))
        self._changed()

    def port(self) -> int | None:
        """Where the web server is, as things stand."""
        chosen = sockets.choose(self.listening, self.wanted_port)
        return chosen.port if chosen is not None else None

    def _spawn(self) -> None:
        self._restart = None
        self.phase = "running"
        self.exit_code = None
        self._started_at = time.monotonic()
        self._child = Child(self._loop, self._kernel, GROUP, self.logs.feed, self._exited)
        self._child.spawn(str(self.request.get("command", "")), str(self.request.get("cwd", "/app")), self.env)
        self._look = self._loop.after(LOOK_S, self.look)
        self._changed()

    def _exited(self, code: int) -> None:
        self.logs.flush()
        self.exit_code = code
        self.listening = []
        self._follow({})
        if self._look is not None:
            self._look.cancel()
        if self.phase == "stopped":
            self._changed()
            return
        if not self.listened:
            self.phase = "exited"
            self._changed()
            return
        if time.monotonic() - self._started_at > STEADY_S:
            self._backoff_s = FIRST_BACKOFF_S
        self.phase = "backoff"
        self.restarts += 1
        self.logs.note(f"[burrow] the app ended with code {code}; starting it again in {self._backoff_s:g} s")
        self._restart = self._loop.after(self._backoff_s, self._spawn)
        self._backoff_s = min(MAX_BACKOFF_S, self._backoff_s * 2)
        self._changed()

    def _follow(self, loopback: dict[int, str]) -> None:
        """Have exactly the forwards these ports need."""
        for port in [p for p, f in self._forwards.items() if loopback.get(p) != f.inside]:
            self._forwards.pop(port).close()
        for port, inside in loopback.items():
            if port not in self._forwards:
                try:
                    self._forwards[port] = Forward(self._loop, self._outside, port, inside, self.look)
                except OSError as e:
                    report(f"port {port} cannot be forwarded: {e}")

    def _changed(self) -> None:
        for callback in list(self._on_change):
            callback()
