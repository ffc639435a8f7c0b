"""Fixtures for the whole suite: the database and the queue, and what a test needs this machine for.

Real servers, started once and only if a test asks (see tests/servers.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from deploy.box.instance import Instance
from deploy.box.reclaim import reclaim
from tests import environment, servers


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> Iterator[None]:
    """pytest-django asks for this just before it makes the test database: time to have a Postgres."""
    with servers.postgres_server():
        yield


@pytest.fixture(scope="session")
def redis_socket() -> Iterator[Path]:
    """The Unix socket of a real Redis."""
    with servers.redis_server() as socket:
        yield socket


def pytest_configure() -> None:
    """Let tests see log entries: a logger that was used once would keep the processors it had then."""
    structlog.configure(cache_logger_on_first_use=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that needs root says so when it is run without, instead of failing somewhere inside."""
    if os.geteuid() == 0:
        return
    for item in items:
        if any(item.get_closest_marker(name) for name in ("root", "vm", "e2e")):
            item.add_marker(pytest.mark.skip(reason="needs root: run deploy/test"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whatever of this run's machines, namespaces and servers is left is ended, told about, and fails the run."""
    if os.geteuid() == 0 and (left := reclaim(Instance.of(environment.VAR))):
        sys.stderr.write("\n  ".join(["\nleft behind by the tests:", *left]) + "\n")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
