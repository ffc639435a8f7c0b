"""Who gets to see and to change what: the signed-in owner, by a form of this site, and nobody else."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from control.accounts.models import User
from control.web import urls
from tests.platform.web import rows
from tests.platform.web.reading import HTMX

OPEN_TO_ALL = {"login", "sign-up", "logout"}
CHANGES = {"sleep", "wake", "policy", "delete", "logout", "revoke-token"}
EXAMPLE = {"name": "shop", "number": 1, "token_id": 1}


def address(pattern: URLPattern, **changed: object) -> str:
    """An example address of a page."""
    wanted = {name: {**EXAMPLE, **changed}[name] for name in pattern.pattern.converters}
    return reverse(f"web:{pattern.name}", kwargs=wanted)


@pytest.mark.parametrize("pattern", urls.urlpatterns, ids=lambda pattern: str(pattern.name))
def test_every_page_asks_a_stranger_to_sign_in(pattern: URLPattern, client: Client, ada: User) -> None:
    rows.live(rows.app_of(ada))
    if pattern.name in OPEN_TO_ALL:
        return
    where = address(pattern)
    answer = client.post(where) if pattern.name in CHANGES else client.get(where)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/login/?next=/")


@pytest.mark.parametrize("pattern", urls.urlpatterns, ids=lambda pattern: str(pattern.name))
def test_another_persons_app_does_not_exist(pattern: URLPattern, browser: Client) -> None:
    grace = rows.person("grace@example.org")
    rows.live(rows.app_of(grace))
    if "name" not in pattern.pattern.converters:
        return
    where = address(pattern)
    answer = browser.post(where) if pattern.name in CHANGES else browser.get(where)
    assert answer.status_code == 404
    assert b"Nothing here" in answer.content
    assert grace.apps.get().deleted_at is None


@pytest.mark.parametrize("pattern", urls.urlpatterns, ids=lambda pattern: str(pattern.name))
def test_what_changes_something_cannot_be_had_by_a_link(pattern: URLPattern, browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    rows.live(app)
    answer = browser.get(address(pattern))
    if pattern.name in CHANGES:
        assert answer.status_code == 405
    else:
        assert answer.status_code in {200, 204, 302}
        assert browser.put(address(pattern)).status_code == 405
    app.refresh_from_db()
    assert app.deleted_at is None


@pytest.mark.parametrize("name", sorted(CHANGES | {"login", "sign-up", "new-app", "tokens", "account"}))
def test_a_form_from_another_site_changes_nothing(name: str, ada: User) -> None:
    rows.live(rows.app_of(ada))
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    pattern = next(pattern for pattern in urls.urlpatterns if pattern.name == name)
    answer = client.post(address(pattern), {"delete-name": "shop", "name": "another"})
    assert answer.status_code == 403
    assert b"Please try again" in answer.content
    assert [(app.slug, app.deleted_at) for app in ada.apps.all()] == [("shop", None)]


@pytest.mark.parametrize("where", ["/apps/shop\0/", "/apps/../", "/apps/shop/deploys/99999999999999999999/", "/nope/"])
def test_what_does_not_exist_is_a_page_that_says_so(where: str, browser: Client, ada: User) -> None:
    rows.app_of(ada)
    assert browser.get(quote(where)).status_code == 404


def test_a_poll_after_the_session_ended_reloads_the_page(client: Client, ada: User) -> None:
    rows.app_of(ada)
    answer = client.get("/apps/shop/live/", headers=HTMX)
    assert answer.headers["HX-Refresh"] == "true"
