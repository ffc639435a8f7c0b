"""Small files that survive a crash at any line: written beside, fsynced, renamed, and the folder fsynced.

The event loop never waits for a disk: `Scribe` owns the threads that do. They are the agent's own pool, so that
hashing an image or copying a disk in the default pool cannot delay a wake.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SCRIBE_THREADS = 8  # that write and fsync


class Scribe:
    """The threads that write and fsync for the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=SCRIBE_THREADS, thread_name_prefix="scribe")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on a scribe thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Finish what was begun and end the threads."""
        self._pool.shutdown(wait=True)


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put `data` at `path` whole or not at all, fsynced."""
    beside = path.with_name(f".{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        _write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    beside.rename(path)
    sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o700) -> None:
    """Create a folder so that a crash cannot lose its name; an existing one is left as it is."""
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        return
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
