"""Talks to the box's supervisor: start it, let it take over a changed configuration, stop it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.box.instance import Instance
from deploy.box.say import Problem, Say
from deploy.box.settings import PATH

COMMAND_TIMEOUT_S = 120
START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 60
POLL_S = 0.1
# The supervisor hands its own environment on to its children: it gets none of the operator's (tokens, cloud keys).
ENVIRONMENT: Mapping[str, str] = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The supervisor of one box."""

    instance: Instance

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.instance.var / "supervisord.conf"

    def ctl(self, *arguments: str, say: Say | None = None, failure: str = "") -> str:
        """supervisorctl; its output. With `failure`, anything but success is a Problem."""
        argv: list[str | Path] = [self.instance.python, "-m", "supervisor.supervisorctl", "-c", self.config, *arguments]
        if say is not None and failure:
            return say.run(argv, failure=failure, timeout_s=COMMAND_TIMEOUT_S, env=ENVIRONMENT)
        done = subprocess.run(
            argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
        return done.stdout + done.stderr

    def states(self) -> dict[str, str]:
        """Each program's state in the supervisor's words; empty when it does not run."""
        if not self.pid():
            return {}
        lines = (line.split() for line in self.ctl("status").splitlines())
        return {w[0]: w[1] for w in lines if len(w) > 1 and w[1].isupper()}

    def runs_since_s(self, name: str) -> int:
        """For how long this program has been running; -1 when it does not."""
        found = re.search(
            rf"^{name}\s+RUNNING\s.*uptime (?:(\d+) days?, )?(\d+):(\d\d):(\d\d)$", self.ctl("status"), re.M
        )
        if not found:
            return -1
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def pid(self) -> int:
        """The supervisor's process id; 0 when it does not run."""
        try:
            pid = int((self.instance.run / "supervisord.pid").read_text(encoding="ascii"))
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return 0
        # The id may be another process's by now.
        return pid if os.fsencode(self.config) in command.split(b"\0") else 0

    def ensure_running(self, say: Say) -> None:
        """Start the supervisor if it does not run; it starts nothing by itself."""
        if self.pid():
            return
        (self.instance.run / "supervisor.sock").unlink(missing_ok=True)
        say.run(
            [self.instance.python, "-m", "supervisor.supervisord", "-c", self.config],
            failure="the supervisor did not start", timeout_s=START_TIMEOUT_S, env=ENVIRONMENT,
        )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (self.pid() and (self.instance.run / "supervisor.sock").exists()):
            if time.monotonic() > deadline:
                raise Problem(f"the supervisor does not answer; see {self.instance.var / 'log/supervisord.log'}")
            time.sleep(POLL_S)

    def bring_up(self, names: list[str], say: Say) -> None:
        """Restart those of the programs whose configuration changed, start those that do not run."""
        self.ctl("reread")
        self.ctl("update", *names, say=say, failure=f"the supervisor could not take over {' '.join(names)}")
        states = self.states()
        idle = [name for name in names if states.get(name) not in {"RUNNING", "STARTING"}]
        if idle:
            # A program that dies at once is told about by the health check, with its log.
            self.ctl("start", *idle)

    def stop(self, names: list[str]) -> None:
        """Stop the programs, in that order."""
        for name in names:
            self.ctl("stop", name)

    def shut_down(self) -> None:
        """Stop everything that still runs and the supervisor itself."""
        if not self.pid():
            return
        self.ctl("shutdown")
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.pid() and time.monotonic() < deadline:
            time.sleep(POLL_S)
