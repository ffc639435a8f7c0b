"""The spool: one tar per push, waiting for its build. Files are named by the push's id and nothing else."""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

BEAT_EVERY_S = 10.0
KEEP_S = 24 * 3600  # a source whose build never came to an end is dropped after that


def source_path(push_id: uuid.UUID) -> Path:
    """Where the push's tar is."""
    return Path(settings.SPOOL) / f"{push_id.hex}.tar"


def remove_source(push_id: uuid.UUID) -> None:
    """Drop the tar; again is fine."""
    source_path(push_id).unlink(missing_ok=True)


@contextmanager
def open_source(push_id: uuid.UUID, *, beat: Callable[[], None]) -> Iterator[BinaryIO]:
    """The tar for an upload; `beat` is called every few seconds while it is read."""
    with BeatingFile(source_path(push_id), beat) as file:
        yield file


def clean() -> int:
    """Drop what was left behind: sources too old, and half-written ones of hooks that were killed."""
    oldest = time.time() - KEEP_S
    dropped = 0
    for path in Path(settings.SPOOL).iterdir():
        if path.suffix in (".tar", ".part") and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
            dropped += 1
    return dropped


class BeatingFile(io.FileIO):
    """A file that tells, while it is read, that its reader is alive."""

    def __init__(self, path: Path, beat: Callable[[], None]) -> None:
        super().__init__(path, "rb")
        self._beat = beat
        self._next = time.monotonic() + BEAT_EVERY_S

    def read(self, size: int | None = -1, /) -> bytes:
        if time.monotonic() >= self._next:
            self._beat()
            self._next = time.monotonic() + BEAT_EVERY_S
        return super().read(-1 if size is None else size) or b""
