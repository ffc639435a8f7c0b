"""The guest agent on a developer's machine: real sockets, real processes, only the kernel's side put in its place.

Run by test_agent.py as a program of its own, because the agent forks and a test process has threads. Its app runs under
a uid nobody else uses, so that only its own listening sockets are found.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from hosts.guest.agent.app import App
from hosts.guest.agent.loop import Loop
from hosts.guest.agent.operations import Operations
from hosts.guest.agent.server import Server

APP_UID = 61234
OUTSIDE = "127.0.0.2"
PEER = "127.0.0.1"


class HostKernel:
    """Notes what would be set, and keeps control groups as files of process ids."""

    app_uid = APP_UID

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set_clock(self, clock_ms: int) -> None:
        self._note(f"clock {clock_ms}")

    def add_entropy(self, entropy: bytes) -> None:
        self._note(f"entropy {entropy.hex()}")

    def set_identity(self, hostname: str, nameservers: list[str]) -> None:
        self._note(f"identity {hostname} {' '.join(nameservers)}")

    def confine(self, group: str) -> None:
        (self.folder / group).touch()

    def join(self, group: str) -> None:
        with (self.folder / group).open("a") as file:
            file.write(f"{os.getpid()}\n")

    def kill_group(self, group: str) -> None:
        if not (self.folder / group).exists():
            return
        for pid in (self.folder / group).read_text().split():
            try:
                os.killpg(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        (self.folder / group).write_text("")

    def remove_group(self, group: str) -> None:
        (self.folder / group).unlink()

    def become_app(self) -> None:
        os.setgroups([])
        os.setgid(APP_UID)
        os.setuid(APP_UID)

    def drop_caches(self) -> None:
        self._note("drop_caches")

    def _note(self, text: str) -> None:
        with (self.folder / "notes").open("a") as file:
            file.write(text + "\n")


def main() -> None:
    folder = Path(sys.argv[1])
    loop = Loop()
    kernel = HostKernel(folder)
    app = App(loop, kernel, OUTSIDE, str(folder / "start.json"), str(folder / "hook"))  # type: ignore[arg-type]
    server = Server(loop, (PEER, 0), PEER, Operations(loop, kernel, app).handle)  # type: ignore[arg-type]
    app.start_again()
    print(server.port, flush=True)  # noqa: T201 - a program
    loop.run()


if __name__ == "__main__":
    main()
