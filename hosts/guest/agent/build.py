"""Runs `hosts.builder.worker` in a builder machine and hands its JSON lines to the host as they come.

The worker is a process of its own: it may import what it likes and the agent stays small. Its output waits while the
host is slow to read; a host that is gone ends it.
"""

from __future__ import annotations

import os

from hosts.guest.agent.child import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hosts.guest.agent.kernel import Kernel
    from hosts.guest.agent.loop import Loop
    from hosts.guest.agent.server import Connection

GROUP = "build"
JOB_FILE = "/run/burrow/build.json"
WORKER = "import sys; sys.path.append('/run/burrow/lib'); from hosts.builder.worker import main; main()"
MAX_WAITING_BYTES = 1024 * 1024  # of a build's output, until the host has read it


class Build:
    """One build under way."""

    __slots__ = ("_child", "_connection")

    def __init__(self, loop: Loop, kernel: Kernel, connection: Connection, job: str) -> None:
        with open(os.open(JOB_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(job)
        kernel.confine(GROUP)
        self._connection = connection
        self._child = Child(loop, kernel, GROUP, self._feed, self._exited)
        connection.on_close = self._child.kill
        connection.on_drained = self._child.resume_output
        self._child.spawn(
            f'exec /usr/bin/python3 -I -S -X utf8 -c "{WORKER}" {JOB_FILE}',
            "/",
            {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"},
            as_root=True,
        )

    def _feed(self, data: bytes) -> None:
        self._connection.write(data)
        if self._connection.waiting_bytes > MAX_WAITING_BYTES:
            self._child.pause_output()

    def _exited(self, code: int) -> None:
        self._connection.on_close = None
        self._connection.answer({"ok": True, "ended": code})
