"""The servers that the tests themselves run on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import servers


def test_redis_answers_and_evicts_nothing(redis_socket: Path) -> None:
    ask = ["redis-cli", "-s", str(redis_socket)]
    assert subprocess.check_output([*ask, "ping"], text=True, timeout=10) == "PONG\n"
    policy = subprocess.check_output([*ask, "config", "get", "maxmemory-policy"], text=True, timeout=10)
    assert policy.splitlines()[-1] == "noeviction"


def test_a_server_that_cannot_start_shows_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="out of disk"),
        servers.running(["sh", "-c", "echo out of disk; exit 1"], log=tmp_path / "log", ready=lambda: False),
    ):
        pass
