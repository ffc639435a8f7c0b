"""What can be done to an app, and its deploys' logs."""

from __future__ import annotations

import pytest
from django.test import Client

from control.accounts.models import User
from control.deploys.models import Deploy
from control.deploys.states import Outcome, Phase
from hosts.wire.commands import ErrorBody
from hosts.wire.states import MachineState
from tests.platform.fakehost import FakeEdge, FakeHost
from tests.platform.web import rows
from tests.platform.web.reading import HOSTILE, HTMX, changed, marks, text_of


@pytest.mark.parametrize(
    ("verb", "before", "word"),
    [("sleep", MachineState.RUNNING, "asleep"), ("wake", MachineState.SUSPENDED, "running")],
)
def test_a_button_asks_the_host_once_and_shows_what_is_now(
    verb: str, before: MachineState, word: str, browser: Client, ada: User, host: FakeHost
) -> None:
    rows.on_host(host, rows.live(rows.app_of(ada), state=before))
    seen = marks(browser.get("/apps/shop/").content.decode())
    answer = browser.post(f"/apps/shop/{verb}/", {"seen": seen}, headers=HTMX)
    assert host.counts[f"POST machines/{verb}"] == 1
    assert "state" in changed(answer)
    assert word in answer.content.decode()


def test_a_button_without_a_script_comes_back_to_the_page(browser: Client, ada: User, host: FakeHost) -> None:
    rows.on_host(host, rows.live(rows.app_of(ada)))
    page = browser.post("/apps/shop/sleep/", follow=True)
    assert page.redirect_chain == [("/apps/shop/", 302)]
    assert "Asleep" in text_of(page)


def test_a_refusal_is_shown_with_and_without_a_script(browser: Client, ada: User, host: FakeHost) -> None:
    rows.on_host(host, rows.live(rows.app_of(ada), state=MachineState.SUSPENDED))
    host.refuse["POST machines/wake"] = (409, ErrorBody("machine:no_space", f"The disk is full. {HOSTILE}"))
    answer = browser.post("/apps/shop/wake/", headers=HTMX)
    assert "notices" in changed(answer)
    assert "The disk is full." in answer.content.decode()
    page = browser.post("/apps/shop/wake/", follow=True)
    assert 'class="notice notice-error">The disk is full.' in page.content.decode()
    assert "<script>alert" not in page.content.decode()


def test_an_unreachable_host_is_a_notice_not_a_broken_page(browser: Client, ada: User, edge: FakeEdge) -> None:
    rows.live(rows.app_of(ada))
    edge.linked = False
    page = browser.post("/apps/shop/sleep/", follow=True)
    assert "The host cannot be reached just now." in text_of(page)


def test_the_log_goes_on_from_where_it_was_until_it_ends(browser: Client, ada: User) -> None:
    deploy = rows.deploying(rows.app_of(ada), phase=Phase.BUILD, lines=["one", HOSTILE])
    where = "/apps/shop/deploys/1/log/"
    first = browser.get(where).content.decode()
    assert first.startswith("one\n&lt;script&gt;")
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


def test_an_app_without_a_release_cannot_be_woken_and_says_so(browser: Client, ada: User) -> None:
    rows.app_of(ada)
    page = browser.post("/apps/shop/wake/", follow=True)
    assert page.status_code == 200
    assert "notice-error" in page.content.decode()


def test_the_idle_period_is_changed(browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    page = browser.post("/apps/shop/policy/", {"idle_period_s": "90", "suspend_after_s": "600"}, follow=True)
    assert "Saved." in page.content.decode()
    app.refresh_from_db()
    assert (app.idle_period_s, app.suspend_after_s) == (90, 600)


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


def test_what_leaves_an_app_asleep_is_changed(browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    sent = {"idle_period_s": "90", "suspend_after_s": "600", "robots_wake": "on", "waiting_page": "on"}
    paths = {"no_wake_paths": "/health\r\n/cron/*\r\n", "no_wake_methods": "HEAD"}
    page = browser.post("/apps/shop/policy/", sent | paths, follow=True).content.decode()
    assert "Saved." in page
    app.refresh_from_db()
    assert app.waiting_page
    assert (app.robots_wake, app.no_wake_paths, app.no_wake_methods) == (True, ["/cron/*", "/health"], ["HEAD"])
    assert "/cron/*\n/health</textarea>" in page
    page = browser.post("/apps/shop/policy/", sent | {"no_wake_paths": "health"}).content.decode()
    assert "is no path of a wake policy" in page
