"""What the dashboard's tests share: a person, a browser signed in as them, and throttles that start empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from control.accounts.models import User
from control.web import views_account
from tests.platform.web import rows


@pytest.fixture(autouse=True)
def fresh_throttles() -> Iterator[None]:
    """No test answers for another's wrong passwords."""
    throttles = (views_account.pair_throttle, views_account.account_throttle, views_account.sign_up_throttle)
    for throttle in throttles:
        throttle.clear()
    yield
    for throttle in throttles:
        throttle.clear()


@pytest.fixture
def ada(db: None) -> User:
    """Someone with an account."""
    return rows.person()


@pytest.fixture
def browser(ada: User) -> Client:
    """Ada's browser, signed in."""
    client = Client()
    client.force_login(ada)
    return client
