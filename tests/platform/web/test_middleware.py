"""Every page says what code it may run, and that nobody keeps it."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from control.accounts.models import User
from control.web import pages
from tests.platform.web import rows


def test_every_page_forbids_code_that_is_not_ours_and_keeps_out_of_caches(browser: Client, ada: User) -> None:
    rows.live(rows.app_of(ada))
    for where in ("/", "/apps/shop/", "/tokens/", "/account/", "/new/", "/apps/shop/deploys/1/", "/nowhere/"):
        answer = browser.get(where)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-store"
        html = answer.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)", html), "no inline script"
        assert not re.search(r"\s(style|on[a-z]+)=", html), "no inline style or handler"


def test_what_is_not_a_page_keeps_its_own_headers(client: Client) -> None:
    for where in ("/static/web/burrow.css", "/static/web/burrow.js", "/static/django_htmx/htmx-2.min.js"):
        answer = client.get(where)
        answer.close()
        assert answer.status_code == 200
        assert "Content-Security-Policy" not in answer.headers
        assert answer.headers.get("Cache-Control") != "no-store"


def test_a_fault_of_ours_shows_a_page_without_its_details(
    browser: Client, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(user: User) -> None:
        raise RuntimeError("the secret of the queries")

    monkeypatch.setattr(pages, "cards_of", break_down)
    browser.raise_request_exception = False
    answer = browser.get("/")
    assert answer.status_code == 500
    assert b"Something broke on our side" in answer.content
    assert b"secret" not in answer.content
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
