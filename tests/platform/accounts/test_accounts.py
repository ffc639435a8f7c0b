"""Accounts and tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from control.accounts import queries, services, tasks
from control.accounts.models import ApiToken, User
from control.errors import UserError
from tests.platform import rows

pytestmark = pytest.mark.django_db


def test_an_email_address_is_taken_once_whatever_its_case() -> None:
    services.sign_up(email="Ada@Example.test", password=rows.PASSWORD)
    with pytest.raises(UserError) as refused:
        services.sign_up(email=" ada@example.TEST", password=rows.PASSWORD)
    assert refused.value.code == "account:email_taken"


@pytest.mark.parametrize("email", ["", "ada", "ada@", "ada@example.test\nBcc: x@y.z"])
def test_what_is_no_email_address_is_refused(email: str) -> None:
    with pytest.raises(UserError) as refused:
        services.sign_up(email=email, password=rows.PASSWORD)
    assert refused.value.code == "account:email_invalid"


@pytest.mark.parametrize("password", ["short", "password1234", "ada@example.test"])
def test_a_weak_password_is_refused(password: str) -> None:
    with pytest.raises(UserError) as refused:
        services.sign_up(email="ada@example.test", password=password)
    assert refused.value.code == "account:password_weak"


def test_a_password_is_changed_by_who_knows_it() -> None:
    user = rows.user()
    with pytest.raises(UserError):
        services.change_password(user=user, old_password="wrong", new_password="another long phrase")
    services.change_password(user=user, old_password=rows.PASSWORD, new_password="another long phrase")
    assert user.check_password("another long phrase")


def test_only_the_digest_of_a_token_is_kept() -> None:
    made = services.create_token(user=rows.user(), name="laptop")
    stored = ApiToken.objects.values().get()
    assert all(made.secret not in str(v) for v in stored.values())
    assert made.secret.startswith(str(stored["prefix"]))


def test_a_token_names_its_user_until_it_is_revoked() -> None:
    user = rows.user()
    made = services.create_token(user=user, name="laptop")
    assert queries.user_of_token(made.secret) == user
    services.revoke_token(user=user, token_id=made.token.id)
    assert queries.user_of_token(made.secret) is None


def test_a_foreign_token_cannot_be_revoked() -> None:
    made = services.create_token(user=rows.user(), name="laptop")
    with pytest.raises(UserError) as refused:
        services.revoke_token(user=rows.user(), token_id=made.token.id)
    assert refused.value.code == "token:unknown"


def test_an_inactive_user_has_no_valid_token() -> None:
    user = rows.user()
    secret = rows.token(user)
    User.objects.filter(id=user.id).update(is_active=False)
    assert queries.user_of_token(secret) is None


@pytest.mark.parametrize("secret", ["", "burrow_", "burrow_" + "x" * 43, "x" * 5000, "burrow_\ud800"])
def test_what_is_no_token_names_nobody(secret: str) -> None:
    assert queries.user_of_token(secret) is None


def test_expired_sign_ins_are_forgotten_and_others_kept() -> None:
    for key, days in (("old", -1), ("new", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + timedelta(days=days))
    tasks.clear_sign_ins()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["new"]
