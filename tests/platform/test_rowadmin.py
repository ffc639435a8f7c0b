"""The admin shows rows and changes none."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.test import Client

from control.accounts.models import User
from control.rowadmin import ReadOnlyAdmin
from tests.platform import rows

pytestmark = pytest.mark.django_db


def test_every_page_of_ours_is_read_only() -> None:
    ours = [a for model, a in admin.site._registry.items() if model.__module__.startswith("control.")]
    assert ours
    assert all(isinstance(a, ReadOnlyAdmin) for a in ours)


def test_staff_see_rows_without_secrets() -> None:
    user = User.objects.create_superuser("root@example.test", rows.PASSWORD)
    rows.token(user)
    rows.app(user, "blog")
    client = Client()
    client.force_login(user)
    assert "blog" in client.get("/admin/applications/app/").content.decode()
    token = user.tokens.get()
    page = client.get(f"/admin/accounts/apitoken/{token.id}/change/").content.decode()
    assert token.digest not in page
    assert client.post("/admin/applications/app/add/", {"slug": "x"}).status_code == 403


def test_the_admin_has_no_login_of_its_own() -> None:
    answer = Client().get("/admin/login/?next=/admin/")
    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/admin/")
