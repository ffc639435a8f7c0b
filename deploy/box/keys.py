"""The box's secrets: made once from the kernel's randomness, each in a file of its own that one user can read."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from deploy.box.instance import Instance

SECRET_BYTES = 32
PASSWORD_BYTES = 12
SECRET_FILE_MODE = 0o600
NAMES = ("secret_key", "host_token")
LINK_TOKEN_FILE = "link_token"  # noqa: S105 - a name


def ensure(instance: Instance) -> None:
    """Make the secrets that are missing."""
    for path, owner in (
        *((instance.var / "secrets" / name, instance.user) for name in NAMES),
        (instance.var / "edge" / LINK_TOKEN_FILE, instance.edge_user),
    ):
        if not path.exists():
            write_private(path, secrets.token_hex(SECRET_BYTES) + "\n")
        shutil.chown(path, owner, owner)


def new_password() -> str:
    """A password for the first person; they may change it."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, never readable by others in between, never half written."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    scratch.replace(path)
