"""The process itself refuses to start with an unsafe secret, and says why."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.environment import ROOT

START_LIMIT_S = 60


def start(**changes: str | None) -> subprocess.CompletedProcess[str]:
    """Django's check, with changed variables."""
    environment = {**os.environ, **{k: v for k, v in changes.items() if v is not None}}
    for name in (k for k, v in changes.items() if v is None):
        environment.pop(name)
    return subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize("name", ["BURROW_SECRET_KEY", "BURROW_HOST_TOKEN"])
@pytest.mark.parametrize("secret", [None, "x1x1x1", "django-insecure-0123456789abcdef0123456789"])
def test_production_does_not_start_with_an_unsafe_secret(name: str, secret: str | None) -> None:
    started = start(**{"BURROW_PRODUCTION": "1", f"{name}_FILE": None, name: secret or ""})
    assert started.returncode != 0
    assert name in started.stderr
    assert secret is None or secret not in started.stderr


def test_production_starts_with_good_ones() -> None:
    started = start(BURROW_PRODUCTION="1")
    assert started.returncode == 0, started.stderr
