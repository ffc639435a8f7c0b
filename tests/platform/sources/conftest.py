"""A control plane as it is run: gunicorn and a Celery worker with beat as processes of their own, and a real git
client.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker

from tests.environment import ROOT, VAR

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
POLL_S = 0.1
GIT_TIMEOUT_S = 90
HTTP_TIMEOUT_S = 30
LOG_SHOWN_CHARS = 6000


@dataclass(frozen=True, slots=True)
class Control:
    """A running control plane."""

    url: str
    web: subprocess.Popen[bytes]


@contextmanager
def process(*argv: str, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("ab") as out,
        subprocess.Popen(
            [sys.executable, "-m", *argv], env=env, cwd=VAR, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ) as running,
    ):
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                running.kill()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def control_environment(port: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
        "DJANGO_SETTINGS_MODULE": "control.settings",
        "BURROW_DB_NAME": str(connection.settings_dict["NAME"]),
        "BURROW_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "BURROW_INTERNAL_URL": f"http://127.0.0.1:{port}",
    }


@contextmanager
def running_web(port: int) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [
        "-b",
        f"127.0.0.1:{port}",
        "-k",
        "gthread",
        "--threads",
        "24",
        "--graceful-timeout",
        "2",
        "--timeout",
        "60",
        "--no-control-socket",
    ]
    with process(
        "gunicorn", *arguments, "control.wsgi:application", env=control_environment(port), log=VAR / "web.log"
    ) as web:
        wait_until_healthy(f"http://127.0.0.1:{port}", web)
        yield web


@contextmanager
def running_worker(port: int) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["worker", "-P", "threads", "-c", "4", "--without-gossip", "--without-mingle", "-l", "INFO"]
    env = control_environment(port)
    with (
        process("celery", "-A", "control.worker", *arguments, env=env, log=VAR / "worker.log") as worker,
        process("celery", "-A", "control.worker", "beat", "-s", str(VAR / "beat"), env=env, log=VAR / "beat.log"),
    ):
        yield worker


def wait_until_healthy(url: str, web: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end and web.poll() is None:
        try:
            if httpx.get(f"{url}/healthz", timeout=HTTP_TIMEOUT_S).is_success:
                return
        except httpx.TransportError:
            time.sleep(POLL_S)
    raise AssertionError(f"web did not start:\n{(VAR / 'web.log').read_text()[-3000:]}")


@pytest.fixture(scope="module")
def control(redis_socket: Path, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Control]:
    port = free_port()
    with django_db_blocker.unblock():
        env_checked = control_environment(port)
    assert env_checked["BURROW_DB_NAME"].startswith("test_")
    with running_web(port) as web, running_worker(port):
        yield Control(f"http://127.0.0.1:{port}", web)
    for name in ("web", "worker"):  # shown only when a test failed
        sys.stdout.write((VAR / f"{name}.log").read_text(errors="replace")[-LOG_SHOWN_CHARS:])


@dataclass(frozen=True, slots=True)
class Repository:
    """A working copy with the real git client."""

    path: Path
    remote: str

    def git(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.test",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.test",
        }
        return subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=check,
        )

    def commit(self, **files: str) -> str:
        for name, text in (files or {"app_py": str(time.monotonic_ns())}).items():
            (self.path / name.replace("_", ".")).write_text(text)
        self.git("add", ".", check=True)
        self.git("commit", "-qm", "A change", check=True)
        return self.git("rev-parse", "HEAD", check=True).stdout.strip()

    def push(self, *refs: str) -> subprocess.CompletedProcess[str]:
        return self.git("push", self.remote, *(refs or ("main",)))


def make_repository(folder: Path, remote: str) -> Repository:
    folder.mkdir(exist_ok=True)
    repository = Repository(folder, remote)
    repository.git("init", "-q", "-b", "main", check=True)
    repository.commit()
    return repository


def status_of(url: str, *, user: str | None = None, password: str = "") -> int:
    """The status of a GET, with Basic authentication where a user is given."""
    return httpx.get(url, auth=None if user is None else (user, password), timeout=HTTP_TIMEOUT_S).status_code
