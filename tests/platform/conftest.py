"""What control's tests share: an edge with a host behind it, and tasks that are caught instead of sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection
from pytest_django.fixtures import Settings
from pytest_django.plugin import DjangoDbBlocker

from control import dispatch
from tests.platform.fakehost import FakeEdge, FakeHost, running_edge

CommitCallbacks = Callable[..., AbstractContextManager[list[Callable[[], None]]]]
Sent = list[tuple[str, tuple[str, ...]]]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Tests that commit are cleaned up by TRUNCATE, which the ledger refuses: that one guard is off, but for its own
    test.
    """
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_entry DISABLE TRIGGER billing_entry_no_truncate")


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The tasks that were sent; nothing reaches a broker."""
    tasks: Sent = []
    monkeypatch.setattr(dispatch, "_send", lambda task, args, countdown_s: tasks.append((task, args)))
    return tasks


@pytest.fixture
def edge() -> Iterator[FakeEdge]:
    """An edge on the socket that control's settings name."""
    with running_edge(Path(django_settings.EDGE_CONTROL_SOCKETS[0])) as edge:
        yield edge


@pytest.fixture
def host(edge: FakeEdge) -> FakeHost:
    """The host behind it."""
    return edge.host


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    """A password hash is slow on purpose, and no test is about that."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
