"""One real box for all of these tests: a copy of this checkout in another folder, brought up by its own `deploy/up`.

That it is a second checkout is part of the test: it must not collide with a box that runs in this one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bench.box import ROOT, Box

UP_TIMEOUT_S = 900
DOWN_TIMEOUT_S = 180


@dataclass(frozen=True)
class RealBox:
    """A running box, its folder, and the ways a test meets it."""

    folder: Path
    described: dict[str, Any]
    client: Box

    def ctl(self, *arguments: str) -> str:
        """`deploy/ctl ...`; its output."""
        done = subprocess.run(
            [self.folder / "deploy/ctl", *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout + done.stderr

    def pid(self, service: str) -> int:
        """The process id of one of the box's services."""
        return int(self.ctl("pid", service).strip())

    def wait_api(self, limit_s: float = 60) -> None:
        """Wait until the API answers again."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                self.client.call("GET", "/apps")
            except (OSError, urllib.error.HTTPError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return


def copy_checkout(target: Path) -> None:
    """The files git knows of (and the new ones it does not ignore), as a fresh clone would have them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=30,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


@pytest.fixture(scope="package")
def box() -> Iterator[RealBox]:
    """The box; gone without a trace when these tests end."""
    folder = Path(tempfile.mkdtemp(prefix="burrow-e2e-"))
    folder.chmod(0o755)
    try:
        copy_checkout(folder)
        up = subprocess.run([folder / "deploy/up"], capture_output=True, text=True, timeout=UP_TIMEOUT_S, check=False)
        if up.returncode:
            pytest.fail(f"deploy/up ended with {up.returncode}:\n{up.stdout[-4000:]}\n{up.stderr[-4000:]}")
        described = json.loads((folder / "var/burrow.json").read_text(encoding="utf-8"))
        yield RealBox(folder, described, Box(api=described["api"].rstrip("/"), token=described["token"]))
    finally:
        if (folder / "deploy/down").exists():
            subprocess.run(
                [folder / "deploy/down", "--purge"], capture_output=True, timeout=DOWN_TIMEOUT_S, check=False
            )
        shutil.rmtree(folder, ignore_errors=True)
