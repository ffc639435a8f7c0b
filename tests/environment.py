"""The settings every test runs with. Loaded by pytest before Django (`-p tests.environment` in pyproject.toml).

They name a throwaway folder, so no test can reach the data of a box that runs on the same machine. The servers behind
the names are started by `tests/servers.py` the first time that a test needs one.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VAR = Path(tempfile.mkdtemp(prefix="bwt-"))  # short: it holds Unix sockets
VAR.chmod(0o755)
INSTANCE = hashlib.sha256(os.fsencode(VAR)).hexdigest()[:6]
SECRET_LENGTH = 64


def remove_folder() -> None:
    """At the end of the run; the servers in it have ended by then."""
    shutil.rmtree(VAR, ignore_errors=True)


def secret(name: str) -> str:
    """A file with a made-up secret; its path."""
    path = VAR / "secrets" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(hashlib.sha256(f"tests {name}".encode()).hexdigest() + "\n", encoding="ascii")
    path.chmod(0o600)
    return str(path)


def settings() -> dict[str, str]:
    """Every variable that control needs, and the few that the other houses share with it."""
    return {
        "BURROW_INSTANCE": INSTANCE,
        "BURROW_VAR": str(VAR),
        "BURROW_PRODUCTION": "0",
        "BURROW_SECRET_KEY_FILE": secret("secret_key"),
        "BURROW_HOST_TOKEN_FILE": secret("host_token"),
        "BURROW_LINK_TOKEN_FILE": secret("link_token"),
        "BURROW_HOST_ID": "host-0",
        "BURROW_DB_HOST": str(VAR / "sockets"),
        "BURROW_DB_NAME": "burrow",
        "BURROW_DB_USER": "burrow",
        "BURROW_REDIS_SOCKET": str(VAR / "sockets/redis.sock"),
        "BURROW_EDGE_CONTROL_SOCKETS": str(VAR / "sockets/edge.sock"),
        "BURROW_REPOS": str(VAR / "repos"),
        "BURROW_SPOOL": str(VAR / "spool"),
        "BURROW_PUBLIC_URL": "http://127.0.0.1:8000",
        "BURROW_PREVIEW_DOMAIN": "localhost",
        "BURROW_PREVIEW_PORT": "8080",
        "BURROW_PREVIEW_SCHEME": "http",
        "BURROW_ALLOWED_HOSTS": "127.0.0.1,localhost,testserver",
    }


def clear_operators_settings() -> None:
    """What the operator exported must not change what the tests see."""
    for name in [n for n in os.environ if n.startswith("BURROW_") and n not in KEPT]:
        del os.environ[name]


# Where deploy/test put the images, and which accelerator to test with.
KEPT = frozenset({"BURROW_IMAGES", "BURROW_ACCELERATOR"})

clear_operators_settings()
os.environ.update(settings())
for folder in ("sockets", "repos", "spool"):
    (VAR / folder).mkdir()
atexit.register(remove_folder)
