"""A refusal stands beside its field and changes nothing."""

from __future__ import annotations

import pytest
from django.test import Client

from control.accounts.models import User
from tests.platform.web import rows


@pytest.mark.parametrize("idle", ["", "-1", "x", "1.5", "99999999999999999999"])
def test_a_strange_idle_period_is_refused_beside_its_field(idle: str, browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    answer = browser.post("/apps/shop/policy/", {"idle_period_s": idle, "suspend_after_s": "600"})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.content.decode()
    app.refresh_from_db()
    assert (app.idle_period_s, app.suspend_after_s) == (60, 300)
