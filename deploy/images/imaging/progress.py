"""What every step shares: saying where it is, and running a command so that a failure explains itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND_TIMEOUT_S = 1200
TAIL_LINES = 15

_started = time.monotonic()


class BuildError(Exception):
    """The images cannot be built; the text is one sentence for the person who ran `deploy/up`."""


def say(message: str) -> None:
    """One line of progress, with the seconds since the start."""
    sys.stdout.write(f"[images {time.monotonic() - _started:5.1f}s] {message}\n")
    sys.stdout.flush()


def run(
    command: Sequence[str],
    *,
    what: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> str:
    """Run a command; its output, or BuildError with what it was for and its last lines."""
    try:
        done = subprocess.run(
            list(command),
            cwd=cwd,
            env={**os.environ, **(env or {}), "LC_ALL": "C.UTF-8"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise BuildError(f"{what}: `{command[0]}` is not installed (see deploy/apt.txt)") from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{what}: `{command[0]}` did not end within {COMMAND_TIMEOUT_S} s") from None
    if done.returncode != 0:
        tail = "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-TAIL_LINES:])
        raise BuildError(f"{what}: `{command[0]}` ended with {done.returncode}:\n    {tail}")
    return done.stdout
