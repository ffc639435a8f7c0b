"""The folder of what guests boot from, as `deploy/images/build` leaves it.

`current` moves when images are built anew, so it is resolved once: a machine is bound to the digest it first booted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hosts.vmm.protocol import Disk

CURRENT = "current"


class GuestImageMissingError(FileNotFoundError):
    """There is no complete image of that name."""


@dataclass(frozen=True, slots=True)
class GuestImage:
    """One complete image folder."""

    folder: Path
    digest: str

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        return self.folder / "initramfs"

    @property
    def base(self) -> Path:
        return self.folder / "base.erofs"

    def base_disk(self) -> Disk:
        """The disk every guest has first."""
        return Disk(serial="base", path=self.base, read_only=True)


def load_image(images: Path, digest: str = CURRENT) -> GuestImage:
    """The image of this digest, or the current one under its digest."""
    folder = images / digest
    try:
        name = (folder / "digest").read_text().strip()
    except OSError:
        raise GuestImageMissingError(f"no guest image at {folder}: run `deploy/images/build {images}`") from None
    if not re.fullmatch(r"[0-9a-f]{64}", name):
        raise GuestImageMissingError(f"{folder}/digest does not hold a digest")
    image = GuestImage(images / name, name)
    for part in (image.kernel, image.initramfs, image.base):
        if not part.is_file():
            raise GuestImageMissingError(f"{part} is missing: run `deploy/images/build {images}`")
    return image
