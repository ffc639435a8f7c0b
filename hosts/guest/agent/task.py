"""A short command beside the app, as the app's user, with a deadline and a bounded memory of what it printed."""

from __future__ import annotations

from hosts.guest.agent.child import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from hosts.guest.agent.app import App
    from hosts.guest.agent.kernel import Kernel
    from hosts.guest.agent.loop import Loop

    class Ended(Protocol):
        def __call__(self, code: int, output: str, *, timed_out: bool) -> None: ...


MAX_OUTPUT_BYTES = 256 * 1024  # of a command's output, the last

_numbers = iter(range(1, 1 << 62))


class Task:
    """One command under way, in a control group of its own so that nothing of it stays."""

    __slots__ = ("_child", "_ended", "_group", "_kernel", "_output", "_timed_out", "_timer")

    def __init__(self, loop: Loop, kernel: Kernel, app: App, command: str, timeout_s: float, ended: Ended) -> None:
        self._kernel = kernel
        self._ended = ended
        self._output = b""
        self._timed_out = False
        self._group = f"task-{next(_numbers)}"
        kernel.confine(self._group)
        self._child = Child(loop, kernel, self._group, self._feed, self._exited)
        self._child.spawn(command, str(app.request.get("cwd", "/")), app.env)
        self._timer = loop.after(timeout_s, self._too_late)

    def _feed(self, data: bytes) -> None:
        self._output = (self._output + data)[-MAX_OUTPUT_BYTES:]

    def _too_late(self) -> None:
        self._timed_out = True
        self._child.kill()

    def _exited(self, code: int) -> None:
        self._timer.cancel()
        self._kernel.remove_group(self._group)
        self._ended(code, self._output.decode("utf-8", "replace"), timed_out=self._timed_out)
