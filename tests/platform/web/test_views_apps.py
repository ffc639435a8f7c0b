"""The list of apps, and making one."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from control.accounts.models import User
from hosts.wire.states import MachineState
from tests.platform.web import rows
from tests.platform.web.reading import HOSTILE, text_of


def test_without_apps_the_page_says_how_to_make_and_push_one(browser: Client) -> None:
    html = browser.get("/").content.decode()
    assert "Put your first app online" in html
    assert "git push http://127.0.0.1:8000/&lt;name&gt;.git main" in html


def test_the_list_has_each_app_with_its_state_price_and_address(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada, "shop"), state=MachineState.SUSPENDED)
    rows.ran(machine, started=rows.ago(hours=1), seconds=10.001)
    rows.app_of(ada, "idea")
    text = text_of(browser.get("/"))
    assert "shop asleep shop.localhost:8080 Wakes on use: costs disk only · release 1, 5 min ago" in text
    assert "0.00005 USD to date" in text
    assert "idea empty idea.localhost:8080 Nothing deployed yet: costs nothing" in text


def test_the_first_deploy_shows_in_the_list_too(browser: Client, ada: User) -> None:
    rows.deploying(rows.app_of(ada))
    assert "shop deploying shop.localhost:8080 Its first release is being made: costs nothing" in text_of(
        browser.get("/")
    )


def test_a_later_deploy_is_a_note_beside_the_state(browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    rows.live(app, number=1)
    rows.deploying(app, number=2)
    assert "Serving: costs 0.018 USD an hour · a deploy is under way · release 1" in text_of(browser.get("/"))


def test_a_new_app_shows_the_exact_push_command(browser: Client) -> None:
    answer = browser.post("/new/", {"name": "shop"}, follow=True)
    assert answer.redirect_chain == [("/apps/shop/", 302)]
    assert b"git push http://127.0.0.1:8000/shop.git main" in answer.content


@pytest.mark.parametrize("name", ["", "-shop", "Shop!", "a" * 41, HOSTILE, "sh\u2028op", "..", "login"])
def test_a_bad_name_is_refused_with_the_rule_and_shown_back_harmless(name: str, browser: Client, ada: User) -> None:
    answer = browser.post("/new/", {"name": name})
    assert answer.status_code == 422
    assert b'aria-invalid="true"' in answer.content
    assert b"<script>alert" not in answer.content
    assert not ada.apps.exists()


def test_more_apps_ask_the_database_no_more_often(
    browser: Client, ada: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(6):
        rows.ran(rows.live(rows.app_of(ada, f"app-{number}")), started=rows.ago(minutes=number + 1), seconds=None)
    with django_assert_max_num_queries(12):
        browser.get("/live/")
