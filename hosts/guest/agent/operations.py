"""What the host may ask of the agent: one method per `op` of the wire.

Clock and randomness after a resume are not here but with `responder.c`; what is left of a resume is the app's hook.
"""

from __future__ import annotations

import json
import os
import time
from binascii import a2b_base64

from hosts.guest.agent.build import Build
from hosts.guest.agent.hook import run_hook
from hosts.guest.agent.task import Task
from hosts.guest.agent.waiting import Wait, listening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hosts.guest.agent.app import App
    from hosts.guest.agent.kernel import Kernel
    from hosts.guest.agent.loop import Loop
    from hosts.guest.agent.server import Connection

AGENT_VERSION = 1
MIN_ENTROPY_BYTES = 16  # at each resume; with less no guest goes on

Request = dict[str, object]


class Operations:
    """Answers requests about one machine."""

    __slots__ = ("_app", "_kernel", "_loop")

    def __init__(self, loop: Loop, kernel: Kernel, app: App) -> None:
        self._loop = loop
        self._kernel = kernel
        self._app = app

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer, now or later; a request that cannot be understood or carried out is answered too."""
        op = request.get("op")
        method = getattr(self, f"op_{op}", None) if isinstance(op, str) else None
        if method is None:
            connection.answer({"ok": False, "code": "guest:bad_request", "message": f"no operation {op!r}"})
            return
        try:
            method(connection, request)
        except (ValueError, TypeError, KeyError) as e:
            connection.answer({"ok": False, "code": "guest:refused", "message": str(e)})
        except OSError as e:
            connection.answer({"ok": False, "code": "guest:failed", "message": f"{op}: {e}"})

    def op_hook(self, connection: Connection, _request: Request) -> None:
        """The machine was resumed and its contract met: tell the app, where it wants to be told."""
        started = time.perf_counter()

        def hooked(problem: str) -> None:
            name = "hook_failed" if problem else "hook"
            if problem:
                self._app.logs.note(f"[burrow] {problem}")
            connection.answer({"ok": True, "steps": [[name, round((time.perf_counter() - started) * 1000, 2)]]})

        if not run_hook(self._loop, self._kernel, self._app, hooked):
            connection.answer({"ok": True, "steps": []})

    def op_hello(self, connection: Connection, _request: Request) -> None:
        up_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        connection.answer({"ok": True, "agent": AGENT_VERSION, "phase": self._app.phase, "up_ms": up_ms})

    def op_start(self, connection: Connection, request: Request) -> None:
        self._kernel.set_clock(_number(request, "clock_ms"))
        self._kernel.add_entropy(_entropy(request))
        self._kernel.set_identity(str(request["hostname"]), _strings(request, "nameservers"))
        self._app.start({name: request[name] for name in ("command", "cwd", "env", "port")})
        connection.answer({"ok": True, "phase": self._app.phase})

    def op_await_listening(self, connection: Connection, request: Request) -> None:
        Wait(self._loop, self._app, connection, _number(request, "timeout_s"))

    def op_status(self, connection: Connection, _request: Request) -> None:
        app = self._app
        app.look()
        connection.answer(
            {
                "ok": True,
                "phase": app.phase,
                "pid": app.pid,
                "restarts": app.restarts,
                "exit_code": app.exit_code,
                "port": app.port(),
                "listening": listening(app),
            }
        )

    def op_logs(self, connection: Connection, request: Request) -> None:
        lines, following = self._app.logs.page(int(_number(request, "after")))
        connection.answer({"ok": True, "lines": lines, "next": following})

    def op_sync(self, connection: Connection, request: Request) -> None:
        os.sync()
        if request.get("drop_caches"):
            self._kernel.drop_caches()
        connection.answer({"ok": True})

    def op_stop(self, connection: Connection, request: Request) -> None:
        self._app.stop(_number(request, "grace_s"), lambda: connection.answer({"ok": True}))

    def op_exec(self, connection: Connection, request: Request) -> None:
        def ended(code: int, output: str, *, timed_out: bool) -> None:
            connection.answer({"ok": True, "exit_code": code, "output": output, "timed_out": timed_out})

        Task(self._loop, self._kernel, self._app, str(request["command"]), _number(request, "timeout_s"), ended)

    def op_build(self, connection: Connection, request: Request) -> None:
        self._kernel.set_clock(_number(request, "clock_ms"))
        self._kernel.add_entropy(_entropy(request))
        self._kernel.set_identity("builder", _strings(request, "nameservers"))
        Build(self._loop, self._kernel, connection, json.dumps(request["job"]))


def _number(request: Request, name: str) -> int:
    value = request.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name}: wanted a number")
    return value  # type: ignore[return-value]  # seconds may have a fraction; milliseconds are whole on the wire


def _entropy(request: Request) -> bytes:
    entropy = a2b_base64(str(request.get("entropy", "")))
    if len(entropy) < MIN_ENTROPY_BYTES:
        raise ValueError(f"entropy: wanted at least {MIN_ENTROPY_BYTES} bytes")
    return entropy


def _strings(request: Request, name: str) -> list[str]:
    value = request.get(name, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(f"{name}: wanted a list of strings")
    return value
