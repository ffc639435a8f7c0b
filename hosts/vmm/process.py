"""Watching and ending a process that need not be our child: by pidfd, guarded against a recycled pid.

A pid is trusted only together with its start time and the boot it was seen on, and both are compared after the pidfd
is open, so the process that was checked is the one that is watched and killed.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from functools import cache
from pathlib import Path

from hosts.vmm.protocol import ProcessRecord, VmmError

# Fields of stat, counted after the command name, which may hold blanks.
_STATE = 0
_START_TICKS = 19
_DEAD = frozenset("ZX")  # ended, only not yet collected by its parent


@cache
def current_boot_id() -> str:
    """What tells this boot of the host from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is not there or has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in _DEAD else int(fields[_START_TICKS])


def record_of(pid: int) -> ProcessRecord | None:
    """The record to find this process by again."""
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    return ProcessRecord(pid=pid, start_ticks=ticks, boot_id=current_boot_id())


class WatchedProcess:
    """A live process whose end sets `exited`. Made by `watch`."""

    def __init__(self, record: ProcessRecord, pidfd: int) -> None:
        self.record = record
        self.exited = asyncio.Event()
        self._pidfd = pidfd
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(pidfd, self._ended)

    @property
    def watching(self) -> bool:
        """Whether its end will be seen."""
        return self._pidfd >= 0

    def kill(self) -> None:
        """SIGKILL; nothing happens if the process has ended."""
        if self.watching:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                return

    async def wait(self, timeout_s: float) -> None:
        """Wait for the end, or VmmError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.exited.wait()
        except TimeoutError:
            raise VmmError(f"process {self.record.pid} did not end within {timeout_s} s") from None

    def close(self) -> None:
        """Stop watching; the process goes on."""
        if self.watching:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _ended(self) -> None:
        self.close()
        self.exited.set()


def watch(record: ProcessRecord) -> WatchedProcess | None:
    """Watch the process of the record, or None if it has ended or its pid belongs to another one now."""
    if record.boot_id != current_boot_id():
        return None
    try:
        pidfd = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return None
    # The pidfd holds on to one process: what is compared now cannot change under it.
    if start_ticks(record.pid) != record.start_ticks or _has_ended(pidfd):
        os.close(pidfd)
        return None
    return WatchedProcess(record, pidfd)


def reap_when_done(pid: int) -> None:
    """Collect a child of ours once it ends, so that it does not stay a zombie; nobody needs to wait for it."""
    loop = asyncio.get_running_loop()
    pidfd = os.pidfd_open(pid)

    def reap() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return

    loop.add_reader(pidfd, reap)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
