"""Runs a build's commands inside the builder machine and says what ended them: a failure, time, disk or memory."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

MAX_LINES = 20_000  # of a build's log
MAX_LINE_CHARS = 2000  # of a line of it
READ_BYTES = 65536
POLL_S = 0.2  # between looks at a command's output
FULL_BELOW_BYTES = 8 * 1024 * 1024  # free: a failed build is told that its disk is full
NO_SPACE = "No space left on device"
MEMORY_EVENTS = Path("/sys/fs/cgroup/build/memory.events")
APP_ID = 1000
# The worker may not be chosen by the OOM killer, but its commands may: the score is inherited, so they set it back.
SHELL = 'echo 0 >/proc/self/oom_score_adj; exec sh -c "$1"'


class Failed(Exception):  # noqa: N818 - reads as the fact it states
    """The build is over; code and sentence are the user's to read."""

    def __init__(self, code: str, phase: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.phase = phase
        self.message = message


def news(item: dict[str, object]) -> None:
    """One JSON line to the host."""
    sys.stdout.write(json.dumps(item) + "\n")
    sys.stdout.flush()


class Runner:
    """Runs one command after the other until the deadline."""

    def __init__(self, env: dict[str, str], cwd: Path, *, deadline: float) -> None:
        self._env = env
        self._cwd = cwd
        self._deadline = deadline
        self._lines = 0
        self._no_space = False
        self._tail: list[str] = []
        self.phase = ""

    def enter(self, phase: str) -> None:
        """Go on to a phase, and say so once."""
        if phase != self.phase:
            self.phase = phase
            news({"phase": phase})

    def run(
        self,
        command: str,
        *,
        stdin: IO[bytes] | None = None,
        as_root: bool = False,
        quiet: bool = False,
        failure: str = "build:step_failed",
        watched: Path | None = None,
    ) -> None:
        """Run `sh -c command`, its output told line by line, or kept for the failure (`quiet`); Failed if it fails."""
        self._no_space = False
        self._tail = []
        kills_before = _oom_kills()
        user = None if as_root else APP_ID
        process = subprocess.Popen(
            ["sh", "-c", SHELL, "sh", command],
            cwd=self._cwd,
            env=self._env,
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            user=user,
            group=user,
            extra_groups=None if as_root else [],
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        with process.stdout as output:
            in_time = self._follow(process, output.fileno(), quiet=quiet)
        if not in_time:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Failed("build:timeout", self.phase, f"the build ran out of time in: {command}")
        code = process.wait()
        if code == 0:
            return
        if _oom_kills() > kills_before:
            raise Failed("build:out_of_memory", self.phase, f"the builder's memory did not suffice for: {command}")
        if self._no_space or self._disk_is_full():
            where = "the finished image is larger than allowed" if watched else "the builder's disk is full"
            raise Failed("build:disk_full", self.phase, f"{where}; it happened in: {command}")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = f": {self._tail[-1]}" if quiet and self._tail else ""
        raise Failed(failure, self.phase, f"`{command}` {how}{last}")

    def end_strays(self) -> None:
        """Kill what install scripts left running: nothing may change the tree while it is packed."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if entry.stat().st_uid == APP_ID:
                        os.kill(int(entry.name), signal.SIGKILL)

    def _follow(self, process: subprocess.Popen[bytes], pipe: int, *, quiet: bool) -> bool:
        """Tell output until the process has ended; False when the time is up first."""
        os.set_blocking(pipe, False)
        partial = b""
        while True:
            if time.monotonic() >= self._deadline:
                return False
            ready, _, _ = select.select([pipe], [], [], POLL_S)
            # A background process may hold the pipe open for ever: the end of the command counts, not of its output.
            ended = process.poll() is not None
            data = b""
            if ready:
                with contextlib.suppress(BlockingIOError):
                    data = os.read(pipe, READ_BYTES)
            if data:
                *whole, partial = (partial + data).split(b"\n")
                if len(partial) > READ_BYTES:
                    whole, partial = [*whole, partial], b""
                for line in whole:
                    self._tell(line, quiet=quiet)
            elif ended:
                if partial:
                    self._tell(partial, quiet=quiet)
                return True
            elif ready:  # closed its output and goes on
                time.sleep(POLL_S)

    def _tell(self, raw: bytes, *, quiet: bool) -> None:
        line = raw.decode("utf-8", "replace")[: MAX_LINE_CHARS * 2]
        if NO_SPACE in line or "ENOSPC" in line:
            self._no_space = True
        self._tail = [*self._tail[-20:], line]
        if quiet:
            return
        self._lines += 1
        if self._lines < MAX_LINES:
            news({"line": line})
        elif self._lines == MAX_LINES:
            news({"line": f"[burrow] more than {MAX_LINES} lines: the rest is not shown"})

    def _disk_is_full(self) -> bool:
        space = os.statvfs(self._cwd)
        return space.f_bavail * space.f_frsize < FULL_BELOW_BYTES or space.f_favail == 0


def _oom_kills() -> int:
    try:
        text = MEMORY_EVENTS.read_text()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)
