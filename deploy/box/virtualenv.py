"""The virtual environment, made from the locked requirements with every hash checked.

Made anew when the lock changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from deploy.box.say import Say

SYSTEM_PYTHON = Path("/usr/bin/python3")  # Debian's: a shim in /root would be out of reach for the services' user
VENV_TIMEOUT_S = 120
INSTALL_TIMEOUT_S = 900
STAMP = "burrow-locks"
ALL_MAY_READ = 0o022


def ensure(venv: Path, locks: list[Path], say: Say) -> None:
    """Make or refresh the environment so that it has what the locks name."""
    wanted = stamp(locks)
    kept = venv / STAMP
    have = kept.read_text(encoding="ascii").split() if kept.exists() else []
    if set(wanted.split()) <= set(have):
        return
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONDONTWRITEBYTECODE": ""}
    before = os.umask(ALL_MAY_READ)
    try:
        if not (venv / "bin/python").exists():
            with say.step("making the virtual environment .venv"):
                shutil.rmtree(venv, ignore_errors=True)
                make: list[str | Path] = [SYSTEM_PYTHON, "-m", "venv", venv]
                say.run(make, failure="python3 -m venv failed", timeout_s=VENV_TIMEOUT_S, env=env)
        requirements = [part for lock in locks for part in ("-r", str(lock))]
        with say.step("installing the locked Python packages"):
            say.run(
                [venv / "bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps",
                 "--only-binary", ":all:", *requirements],
                failure="pip could not install the locked packages", timeout_s=INSTALL_TIMEOUT_S, env=env,
            )  # fmt: skip
        kept.write_text(wanted, encoding="ascii")
    finally:
        os.umask(before)


def stamp(locks: list[Path]) -> str:
    """One digest a lock."""
    return "".join(hashlib.sha256(lock.read_bytes()).hexdigest() + "\n" for lock in locks)
