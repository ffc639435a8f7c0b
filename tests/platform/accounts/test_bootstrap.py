"""`manage.py bootstrap`, as deploy/up calls it."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import CommandError, call_command

from control.accounts import queries
from control.accounts.models import User
from tests.platform import rows

pytestmark = pytest.mark.django_db


def bootstrap(monkeypatch: pytest.MonkeyPatch, **wanted: str | None) -> dict[str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(wanted)))
    out = io.StringIO()
    call_command("bootstrap", stdout=out)
    answer: dict[str, str] = json.loads(out.getvalue())
    return answer


def test_bootstrap_makes_the_first_user_and_keeps_what_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    first = bootstrap(monkeypatch, email="root@example.test", password=rows.PASSWORD, token=None)
    again = bootstrap(monkeypatch, email="root@example.test", password="something else", token=first["token"])
    assert again == first
    assert User.objects.get().check_password(rows.PASSWORD)
    renewed = bootstrap(monkeypatch, email="root@example.test", password=rows.PASSWORD, token="burrow_lost")
    assert renewed["token"] != first["token"]
    assert queries.user_of_token(renewed["token"]) == User.objects.get()


@pytest.mark.parametrize("given", ["", "[]", "{}", '{"email": "x"}', '{"email": "x", "password": "y"}'])
def test_bootstrap_says_what_is_wrong_with_its_input(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    with pytest.raises(CommandError):
        call_command("bootstrap")
    assert not User.objects.exists()
