"""`/healthz` tells whether this process can do its work."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import DatabaseError, connection
from django.test import Client


@pytest.mark.django_db
def test_it_is_well_with_a_database_whatever_redis_does(redis_socket: Path) -> None:
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"database": True, "redis": True})


@pytest.mark.django_db
def test_without_a_database_it_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise DatabaseError

    monkeypatch.setattr(connection, "cursor", refuse)
    assert Client().get("/healthz").status_code == 503
