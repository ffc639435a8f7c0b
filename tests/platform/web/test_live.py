"""Parts that keep themselves fresh, and the buttons that change them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.test import Client

from control.accounts.models import User
from control.deploys.models import Deploy
from control.deploys.states import Outcome, Phase
from control.errors import Kind, UserError
from control.machines.models import Machine
from control.routes import services as routing
from hosts.wire.states import MachineState
from tests.platform.web import rows

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

HTMX = {"HX-Request": "true"}
HOSTILE = "</pre><script>alert(1)</script>"


def marks(html: str) -> list[str]:
    """What the page would say it has."""
    return re.findall(r'name="seen" value="([^"]+)"', html)


def changed(answer: Answer) -> list[str]:
    """The parts that a poll brought."""
    return re.findall(r'<div id="([^"]+)" hx-swap-oob', answer.content.decode())


def test_a_poll_of_an_unchanged_page_brings_nothing(browser: Client, ada: User) -> None:
    rows.live(rows.app_of(ada), state=MachineState.SUSPENDED)
    for page, poll in (("/", "/live/"), ("/apps/shop/", "/apps/shop/live/"), ("/apps/shop/deploys/1/",) * 2):
        where = poll if poll != page else "/apps/shop/deploys/1/live/"
        seen = marks(browser.get(page).content.decode())
        assert seen
        assert browser.get(where, {"seen": seen}, headers=HTMX).status_code == 204


def test_a_poll_brings_only_what_changed(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada), state=MachineState.SUSPENDED)
    seen = marks(browser.get("/apps/shop/").content.decode())
    Machine.objects.filter(id=machine.id).update(state=MachineState.RUNNING.value)
    answer = browser.get("/apps/shop/live/", {"seen": seen}, headers=HTMX)
    assert changed(answer) == ["state", "controls", "meaning"]
    assert "running" in answer.content.decode()


def test_a_new_deploy_replaces_the_log_and_the_same_one_does_not(browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    first = rows.deploying(app, number=1, phase=Phase.BUILD, lines=["one"])
    seen = marks(browser.get("/apps/shop/").content.decode())
    rows.say(first, "two")
    assert "log" not in changed(browser.get("/apps/shop/live/", {"seen": seen}, headers=HTMX))
    Deploy.objects.filter(id=first.id).update(outcome=Outcome.SUPERSEDED.value)
    rows.deploying(app, number=2, phase=Phase.QUEUED)
    assert "log" in changed(browser.get("/apps/shop/live/", {"seen": seen}, headers=HTMX))


def test_a_poll_after_the_session_ended_reloads_the_page(client: Client, ada: User) -> None:
    rows.app_of(ada)
    answer = client.get("/apps/shop/live/", headers=HTMX)
    assert answer.headers["HX-Refresh"] == "true"


def test_the_log_goes_on_from_where_it_was_until_it_ends(browser: Client, ada: User) -> None:
    deploy = rows.deploying(rows.app_of(ada), phase=Phase.BUILD, lines=["one", HOSTILE])
    where = "/apps/shop/deploys/1/log/"
    first = browser.get(where).content.decode()
    assert first.startswith("one\n&lt;/pre&gt;&lt;script&gt;")
    assert f'hx-get="{where}?after=2"' in first
    assert browser.get(where, {"after": "2"}).status_code == 204
    rows.say(deploy, "three")
    second = browser.get(where, {"after": "2"}).content.decode()
    assert second.startswith("three\n<span")
    assert "after=3" in second
    Deploy.objects.filter(id=deploy.id).update(outcome=Outcome.FAILED.value)
    assert browser.get(where, {"after": "3"}).content == b""


@pytest.mark.parametrize("after", ["-1", "+1", "1_0", "", "x", "\u0661", "9" * 30, "1e3"])
def test_a_strange_line_number_reads_as_the_beginning(after: str, browser: Client, ada: User) -> None:
    rows.deploying(rows.app_of(ada), phase=Phase.BUILD, lines=["one"])
    assert browser.get("/apps/shop/deploys/1/log/", {"after": after}).content.startswith(b"one\n")


def test_a_long_log_shows_its_end_on_the_apps_page_and_all_of_it_on_its_own(browser: Client, ada: User) -> None:
    rows.live(rows.app_of(ada), lines=[f"line {number}" for number in range(2_500)])
    page = browser.get("/apps/shop/").content.decode()
    assert "line 2499\n" in page
    assert "line 2100\n" not in page
    own = browser.get("/apps/shop/deploys/1/").content.decode()
    assert "line 0\n" in own
    assert "?after=1000" in own


@pytest.mark.parametrize(("verb", "service"), [("sleep", "sleep_app"), ("wake", "wake_app")])
def test_a_button_asks_the_host_once_and_shows_what_is_now(
    verb: str, service: str, browser: Client, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = rows.live(rows.app_of(ada))
    asked = []

    def host_does(*, app: object) -> str:
        asked.append(str(app))
        Machine.objects.filter(id=machine.id).update(state=MachineState.PAUSED.value)
        return MachineState.PAUSED.value

    monkeypatch.setattr(routing, service, host_does)
    seen = marks(browser.get("/apps/shop/").content.decode())
    answer = browser.post(f"/apps/shop/{verb}/", {"seen": seen}, headers=HTMX)
    assert asked == ["shop"]
    assert "state" in changed(answer)
    assert "asleep" in answer.content.decode()
    plain = browser.post(f"/apps/shop/{verb}/")
    assert plain.headers["Location"] == "/apps/shop/"


def test_a_refusal_is_shown_with_and_without_a_script(
    browser: Client, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.live(rows.app_of(ada))

    def refuse(*, app: object) -> str:
        raise UserError("machine:busy", "A request is in flight.", Kind.CONFLICT)

    monkeypatch.setattr(routing, "sleep_app", refuse)
    answer = browser.post("/apps/shop/sleep/", headers=HTMX)
    assert "notices" in changed(answer)
    assert "A request is in flight." in answer.content.decode()
    page = browser.post("/apps/shop/sleep/", follow=True)
    assert page.redirect_chain == [("/apps/shop/", 302)]
    assert 'class="notice notice-error">A request is in flight.' in page.content.decode()


def test_an_app_without_a_release_cannot_be_woken_and_says_so(browser: Client, ada: User) -> None:
    rows.app_of(ada)
    page = browser.post("/apps/shop/wake/", follow=True)
    assert page.status_code == 200
    assert "notice-error" in page.content.decode()


def test_an_unreachable_host_is_a_notice_not_a_broken_page(browser: Client, ada: User) -> None:
    rows.live(rows.app_of(ada))  # and no edge runs in this test
    page = browser.post("/apps/shop/sleep/", follow=True)
    assert page.status_code == 200
    assert "notice-error" in page.content.decode()


def test_the_idle_period_is_changed(browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    page = browser.post("/apps/shop/policy/", {"idle_period_s": "90", "suspend_after_s": "600"}, follow=True)
    assert "Saved." in page.content.decode()
    app.refresh_from_db()
    assert (app.idle_period_s, app.suspend_after_s) == (90, 600)


@pytest.mark.parametrize("idle", ["", "-1", "x", "1.5", "99999999999999999999"])
def test_a_strange_idle_period_is_refused_beside_its_field(idle: str, browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    answer = browser.post("/apps/shop/policy/", {"idle_period_s": idle, "suspend_after_s": "600"})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.content.decode()
    app.refresh_from_db()
    assert (app.idle_period_s, app.suspend_after_s) == (60, 300)


def test_deleting_asks_for_the_name(browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    refused = browser.post("/apps/shop/delete/", {"delete-name": "shopp"})
    assert refused.status_code == 422
    assert "nothing was deleted" in refused.content.decode()
    app.refresh_from_db()
    assert app.deleted_at is None
    done = browser.post("/apps/shop/delete/", {"delete-name": "shop"}, follow=True)
    assert "shop is deleted." in done.content.decode()
    assert browser.get("/apps/shop/").status_code == 404
