"""Release images by the sha256 of their content: written once, read-only for ever, shared by every machine that runs
them.

An image is there whole or not at all: it is hashed while it is copied beside its place, fsynced, and renamed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from pathlib import Path

from hosts.wire.spec import ImageDigest

CHUNK_BYTES = 1 << 20

_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNFINISHED = ".new-"


class ImageStore:
    """The images in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, digest: ImageDigest) -> Path:
        """Where the image is, or would be; ValueError if that is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is not a sha256 digest")
        return self._folder / digest

    def has(self, digest: ImageDigest) -> bool:
        """Whether the image is here."""
        return self.path(digest).is_file()

    def digests(self) -> frozenset[ImageDigest]:
        """All images that are here."""
        return frozenset(ImageDigest(path.name) for path in self._folder.iterdir() if _DIGEST.fullmatch(path.name))

    async def add(self, source: Path) -> ImageDigest:
        """Take a copy of the file and give its digest; OSError (no space, say) leaves nothing."""
        return await asyncio.to_thread(self._add, source)

    def remove(self, digest: ImageDigest) -> None:
        """Remove an image; idempotent. A VMM that has it open keeps reading it."""
        self.path(digest).unlink(missing_ok=True)

    def reclaim(self) -> None:
        """Remove what an agent that died left half written; only before anything is added."""
        for path in self._folder.glob(f"{_UNFINISHED}*"):
            path.unlink(missing_ok=True)

    def _add(self, source: Path) -> ImageDigest:
        # O_NOFOLLOW: the file may lie where something less trusted than we writes.
        source_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(source_fd, "rb", buffering=0) as reader:
            target_fd, beside = tempfile.mkstemp(dir=self._folder, prefix=_UNFINISHED)
            try:
                with os.fdopen(target_fd, "wb", buffering=0) as writer:
                    sha256 = hashlib.sha256()
                    while chunk := reader.read(CHUNK_BYTES):
                        sha256.update(chunk)
                        _write(writer.fileno(), chunk)
                    os.fchmod(writer.fileno(), 0o444)
                    os.fsync(writer.fileno())
                digest = ImageDigest(sha256.hexdigest())
                Path(beside).rename(self.path(digest))
            except BaseException:
                Path(beside).unlink(missing_ok=True)
                raise
        self._sync_folder()
        return digest

    def _sync_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
