"""Tasks are sent after the commit, and a broken broker breaks nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.db import transaction

from control import dispatch
from control.worker import app

real_send = dispatch._send  # before the fixture that catches tasks takes its place
Sent = list[tuple[str, tuple[str, ...]]]


@pytest.mark.django_db(transaction=True)
def test_a_task_is_sent_once_its_rows_are_committed(sent: Sent) -> None:
    with transaction.atomic():
        dispatch.send("deploys.advance", "x")
        assert sent == []
    assert sent == [("deploys.advance", ("x",))]


@pytest.mark.django_db(transaction=True)
def test_a_task_of_a_transaction_that_is_rolled_back_is_not_sent(sent: Sent) -> None:
    with transaction.atomic():
        dispatch.send("deploys.advance", "x")
        transaction.set_rollback(True)
    assert sent == []


def test_without_a_broker_sending_gives_up_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise redis.ConnectionError("no such socket")

    monkeypatch.setattr(app, "send_task", refuse)
    real_send("deploys.sweep", (), 0)


def test_a_task_reaches_the_broker(redis_socket: Path) -> None:
    real_send("sources.clean", (), 0)
    with redis.Redis(unix_socket_path=str(redis_socket)) as client:
        assert client.llen(f"burrow-{settings.INSTANCE}:celery") == 1
        client.flushall()
    app.close()
