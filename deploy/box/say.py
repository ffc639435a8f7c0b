"""What a person sees meanwhile: one line a step, a sign of life on long ones, one clear line on failure.

The full output of every command goes to a log file; the terminal gets its end only when the command fails.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

FIRST_SIGN_OF_LIFE_S = 5
SIGN_OF_LIFE_S = 15
SHOWN_ON_FAILURE_LINES = 15


class Problem(Exception):  # noqa: N818 - reads as the fact it states
    """Something the operator can mend; the message is the one line they see."""


@dataclass(slots=True)
class Say:
    """Prints progress; `log` keeps what commands printed."""

    log: Path | None = None
    out: IO[str] = field(default_factory=lambda: sys.stdout)

    def line(self, text: str) -> None:
        """One line for the person."""
        print(text, file=self.out, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step, give a sign of life while it lasts, and say how long it took if it took long."""
        started = time.monotonic()
        self.line(f"• {title}")
        over = threading.Event()

        def sign_of_life() -> None:
            pause = FIRST_SIGN_OF_LIFE_S
            while not over.wait(pause):
                pause = SIGN_OF_LIFE_S
                self.line(f"    … {title} ({time.monotonic() - started:.0f} s)")

        thread = threading.Thread(target=sign_of_life, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=SIGN_OF_LIFE_S)
        taken = time.monotonic() - started
        if taken > FIRST_SIGN_OF_LIFE_S:
            self.line(f"    done in {taken:.0f} s")

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        failure: str,
        timeout_s: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        show: bool = False,
        secret: bool = False,
    ) -> str:
        """Run a command; its standard output, or a Problem that opens with `failure`.

        `show` passes its lines on as they come.
        """
        lines: list[str] = []
        with subprocess.Popen(
            [str(a) for a in argv], cwd=cwd, env=env, text=True, errors="replace",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            timer = threading.Timer(timeout_s, process.kill)
            timer.start()
            try:
                if process.stdin is None or process.stdout is None:
                    raise RuntimeError("pipes were asked for")
                process.stdin.write(stdin)
                process.stdin.close()
                for text in process.stdout:
                    lines.append(text.rstrip("\n"))
                    if show:
                        self.line(f"    {lines[-1]}")
                process.wait()
            except BaseException:
                process.kill()
                raise
            finally:
                in_time = timer.is_alive()
                timer.cancel()
        self._keep(argv, ["(not kept: it holds a secret)"] if secret else lines)
        if process.returncode:
            if not show:
                for text in lines[-SHOWN_ON_FAILURE_LINES:]:
                    self.line(f"    | {text}")
            why = f"exit code {process.returncode}" if in_time else f"no end after {timeout_s:.0f} s"
            where = f"; all of its output: {self.log}" if self.log else ""
            raise Problem(f"{failure} ({why}{where})")
        return "\n".join(lines)

    def _keep(self, argv: Sequence[str | Path], lines: list[str]) -> None:
        if self.log is None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as f:
            f.write(f"$ {' '.join(str(a) for a in argv)}\n")
            f.writelines(f"{text}\n" for text in lines)
