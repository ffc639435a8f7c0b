"""Signing in, up and out; tokens; passwords."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.test import Client

from control.accounts import queries
from control.accounts.models import ApiToken, User
from control.web import views_account
from tests.platform.web import rows

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer


def sign_in(client: Client, *, password: str = rows.PASSWORD, email: str = "ada@example.org", to: str = "") -> Answer:
    """Send the form."""
    return client.post("/login/", {"email": email, "password": password, "next": to})


def is_signed_in(client: Client) -> bool:
    """Whether the apps may be seen."""
    return client.get("/").status_code == 200


def test_a_person_signs_up_and_is_signed_in(client: Client, db: None) -> None:
    answer = client.post("/sign-up/", {"email": "Ada@Example.org", "password": rows.PASSWORD})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert User.objects.get().email == "ada@example.org"
    assert is_signed_in(client)


@pytest.mark.parametrize(
    ("email", "password", "says"),
    [
        ("ada@example.org", rows.PASSWORD, "There is an account"),
        ("nobody", rows.PASSWORD, "valid email"),
        ("grace@example.org", "Xq7", "too short"),
        ("grace@example.org", "password1234", "too common"),
        ("grace@example.org", "", "required"),
    ],
)
def test_a_bad_sign_up_says_what_is_wrong(email: str, password: str, says: str, client: Client, ada: User) -> None:
    answer = client.post("/sign-up/", {"email": email, "password": password})
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert password == "" or password not in answer.content.decode()
    assert list(User.objects.all()) == [ada]


def test_signing_in_makes_a_new_session_that_scripts_cannot_read(client: Client, ada: User) -> None:
    client.get("/login/")
    assert sign_in(client, email="ADA@example.org").status_code == 302
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert is_signed_in(client)


def test_a_wrong_password_and_an_unknown_person_read_the_same(client: Client, ada: User) -> None:
    wrong = sign_in(client, password="not it")
    unknown = sign_in(client, email="grace@example.org")
    assert wrong.status_code == unknown.status_code == 422
    for answer in (wrong, unknown):
        assert views_account.WRONG in answer.content.decode()
        assert "not it" not in answer.content.decode()
    assert not is_signed_in(client)


def test_guessing_is_stopped_even_for_the_right_password_until_the_window_ends(client: Client, ada: User) -> None:
    for _ in range(views_account.FAILURES_PER_PAIR):
        assert sign_in(client, password="not it").status_code == 422
    answer = sign_in(client)
    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= views_account.FAILURES_WINDOW_S
    assert "Too many wrong passwords" in answer.content.decode()
    elsewhere = Client(REMOTE_ADDR="203.0.113.9")
    assert sign_in(elsewhere).status_code == 302, "her own address is not locked out"


def test_many_addresses_together_are_stopped_too(ada: User) -> None:
    for number in range(views_account.FAILURES_PER_ACCOUNT):
        sign_in(Client(REMOTE_ADDR=f"203.0.113.{number}"), password="not it")
    assert sign_in(Client(REMOTE_ADDR="198.51.100.1")).status_code == 429


@pytest.mark.parametrize(
    ("wanted", "goes"),
    [
        ("/apps/shop/", "/apps/shop/"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_after_signing_in_one_goes_on_here_and_nowhere_else(wanted: str, goes: str, client: Client, ada: User) -> None:
    assert sign_in(client, to=wanted).headers["Location"] == goes


def test_signing_out_ends_the_session(browser: Client) -> None:
    assert is_signed_in(browser)
    assert browser.post("/logout/").headers["Location"] == "/login/"
    assert not is_signed_in(browser)


def test_a_tokens_secret_is_shown_once_and_works(browser: Client, ada: User) -> None:
    answer = browser.post("/tokens/", {"name": "laptop"})
    found = re.search(r'<pre id="secret"[^>]*>([^<]+)</pre>', answer.content.decode())
    assert found is not None
    assert queries.user_of_token(found[1]) == ada
    again = browser.get("/tokens/").content.decode()
    assert "laptop" in again
    assert found[1] not in again


def test_a_revoked_token_opens_nothing_and_is_not_listed(browser: Client, ada: User) -> None:
    browser.post("/tokens/", {"name": "old thinkpad"})
    token = ApiToken.objects.get()
    answer = browser.post(f"/tokens/{token.id}/revoke/", follow=True)
    assert "The token is revoked." in answer.content.decode()
    assert "old thinkpad" not in answer.content.decode()
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_another_persons_token_cannot_be_revoked(browser: Client) -> None:
    grace = Client()
    grace.force_login(rows.person("grace@example.org"))
    grace.post("/tokens/", {"name": "hers"})
    token = ApiToken.objects.get()
    assert browser.post(f"/tokens/{token.id}/revoke/").status_code == 404
    token.refresh_from_db()
    assert token.revoked_at is None


def test_a_token_without_a_name_is_refused(browser: Client) -> None:
    assert browser.post("/tokens/", {"name": "  "}).status_code == 422
    assert not ApiToken.objects.exists()


def test_a_hostile_token_name_stays_text(browser: Client) -> None:
    html = browser.post("/tokens/", {"name": "<script>alert(1)</script>"}).content.decode()
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_new_password_keeps_this_session_and_ends_the_others(browser: Client, ada: User) -> None:
    other = Client()
    other.force_login(ada)
    new = "quite another burrow"
    answer = browser.post("/account/", {"old_password": rows.PASSWORD, "new_password": new}, follow=True)
    assert "The password is changed." in answer.content.decode()
    assert is_signed_in(browser)
    assert not is_signed_in(other)
    assert sign_in(Client(), password=new).status_code == 302


@pytest.mark.parametrize(("old", "new"), [("not it", "quite another burrow"), (rows.PASSWORD, "short")])
def test_a_refused_password_changes_nothing(old: str, new: str, browser: Client, ada: User) -> None:
    answer = browser.post("/account/", {"old_password": old, "new_password": new})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.content.decode()
    ada.refresh_from_db()
    assert ada.check_password(rows.PASSWORD)
