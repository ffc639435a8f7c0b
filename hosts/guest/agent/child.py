"""A process the agent starts, nearly always as the app's user: in a control group, its output read through one pipe.

fork and exec by hand, since importing subprocess would slow every cold boot; the agent is single-threaded, which is
what makes that safe. The end is seen through a pidfd, so that no signal handler is needed.
"""

from __future__ import annotations

import os
import sys

from hosts.guest.agent.loop import READ, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hosts.guest.agent.kernel import Kernel

READ_BYTES = 64 * 1024
# What the shell uses for "cannot be executed".
CANNOT_START = 126


class Child:
    """One process, from fork to the last byte of its output."""

    __slots__ = (
        "_ended",
        "_group",
        "_kernel",
        "_loop",
        "_on_exit",
        "_on_output",
        "_pidfd",
        "_pipe",
        "exit_code",
        "pid",
    )

    def __init__(
        self,
        loop: Loop,
        kernel: Kernel,
        group: str,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._group = group
        self._on_output = on_output
        self._on_exit = on_exit
        self._ended = False
        self.exit_code: int | None = None
        self.pid = 0
        self._pidfd = self._pipe = -1

    def spawn(self, command: str, cwd: str, env: dict[str, str], *, as_root: bool = False) -> None:
        """Start `sh -c command`; as root only for our own programs, whose stderr then is the console."""
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(command, cwd, env, writer, as_root)
        os.close(writer)
        os.set_blocking(reader, False)
        self._pipe = reader
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.watch(reader, READ, self._output)
        self._loop.watch(self._pidfd, READ, self._exited)

    def kill(self) -> None:
        """SIGKILL the whole group."""
        self._kernel.kill_group(self._group)

    def signal(self, number: int) -> None:
        """Signal the process and what shares its process group."""
        if self.exit_code is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass

    def pause_output(self) -> None:
        """Leave output in the pipe, so that the process waits, until `resume_output`."""
        self._loop.forget(self._pipe)

    def resume_output(self) -> None:
        if self._pipe >= 0:
            self._loop.watch(self._pipe, READ, self._output)

    def _become(self, command: str, cwd: str, env: dict[str, str], output: int, as_root: bool) -> None:  # noqa: FBT001
        """In the child, from here to exec. Whatever fails is told on the output, where its reader looks."""
        try:
            os.setsid()
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            self._kernel.join(self._group)
            if not as_root:
                os.dup2(output, 2)
                self._kernel.become_app()
            os.chdir(cwd)
            os.execve("/bin/sh", ["sh", "-c", command], env)
        except OSError as e:
            os.write(2, f"cannot start: {e}\n".encode())
        finally:
            os._exit(CANNOT_START)

    def _output(self, _events: int) -> None:
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._on_output(data)
        else:
            self._close_pipe()

    def _exited(self, _events: int) -> None:
        _, status = os.waitpid(self.pid, 0)
        self._loop.forget(self._pidfd)
        os.close(self._pidfd)
        self.exit_code = os.waitstatus_to_exitcode(status)
        # Nothing of it may stay and hold its port; and the pipe then ends for certain.
        self.kill()
        self._drain()
        self._close_pipe()
        self._on_exit(self.exit_code)

    def _drain(self) -> None:
        """Read what the pipe still holds (a pipe's worth at most, as the writers are dead)."""
        while self._pipe >= 0:
            try:
                data = os.read(self._pipe, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            self._on_output(data)

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            self._loop.forget(self._pipe)
            os.close(self._pipe)
            self._pipe = -1


def report(text: str) -> None:
    """A line on the console."""
    sys.stderr.write(f"burrow-agent: {text}\n")
