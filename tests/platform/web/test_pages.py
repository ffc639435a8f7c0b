"""What a signed-in person reads on the pages, and that nobody else does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from control.accounts.models import User
from control.deploys.states import Outcome, Phase
from control.machines.models import Machine
from control.web import urls
from hosts.wire.events import Cause, EndCause
from hosts.wire.states import MachineState
from tests.platform.web import rows

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
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


def test_an_apps_page_shows_state_release_sessions_and_exact_cost(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada), state=MachineState.RUNNING)
    rows.ran(machine, started=rows.ago(hours=2), seconds=200.2, cause=Cause.DEPLOY)
    rows.ran(machine, started=rows.ago(hours=1), seconds=3.3, cause=Cause.API, end_cause=EndCause.CRASH)
    text = text_of(browser.get("/apps/shop/"))
    assert "Running for 3 min, serving: costs 0.018 USD an hour" in text
    assert "Sleep now" in text
    assert "Wake now" not in text
    assert "Cost to date 0.001017 USD" in text
    assert "2 h ago deploy until idle 3 min 20 s 0.001001" in text
    assert "1 h ago by hand until it crashed 3.3 s 0.000016" in text


def test_an_open_session_is_shown_running_and_counted(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada))
    rows.ran(machine, started=rows.ago(seconds=100), seconds=None)
    text = text_of(browser.get("/apps/shop/"))
    assert re.search(r"1 min ago request running 1 min 4\d s 0\.0005\d\d", text)


@pytest.mark.parametrize(
    ("state", "says", "button"),
    [
        (MachineState.PAUSED, "Asleep for 3 min, wakes on use: costs disk only; its memory is kept ready", "Wake now"),
        (MachineState.SUSPENDED, "Asleep for 3 min, wakes on use: costs disk only; its memory is kept on disk", "Wake"),
        (MachineState.RESUMING, "Waking for 3 min, going on where it was: costs 0.018 USD an hour", "Open app"),
        (MachineState.STOPPED, "Stopped for 3 min, starts fresh on use: costs disk only", "Wake now"),
    ],
)
def test_each_state_is_named_with_its_price(state: str, says: str, button: str, browser: Client, ada: User) -> None:
    rows.live(rows.app_of(ada), state=state)
    text = text_of(browser.get("/apps/shop/"))
    assert says in text
    assert button in text


def test_a_failed_machine_says_why(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada), state=MachineState.FAILED)
    Machine.objects.filter(id=machine.id).update(code="app:exited", detail=f"It exited with code 1. {HOSTILE}")
    answer = browser.get("/apps/shop/")
    assert "It exited with code 1." in text_of(answer)
    assert b"<script>alert" not in answer.content


def test_a_machine_that_lost_its_memory_says_so(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada))
    report = {"last_start": {"start": "cold_boot", "reason": "the snapshot was refused: wrong VMM version"}}
    Machine.objects.filter(id=machine.id).update(report=report)
    assert "the snapshot was refused: wrong VMM version" in text_of(browser.get("/apps/shop/"))


def test_a_deploy_under_way_shows_its_phase_and_its_log(browser: Client, ada: User) -> None:
    rows.deploying(rows.app_of(ada), phase=Phase.BUILD, lines=["Collecting flask", HOSTILE])
    answer = browser.get("/apps/shop/")
    text = text_of(answer)
    assert "Deploying under way" in text
    assert "build: packing" in text
    assert "Collecting flask" in text
    assert b"<script>alert" not in answer.content
    assert b"&lt;script&gt;alert(1)&lt;/script&gt;" in answer.content


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


def test_a_failed_deploy_says_why_and_that_the_old_release_is_live(browser: Client, ada: User) -> None:
    app = rows.app_of(ada)
    rows.live(app, number=1, at=rows.ago(hours=2))
    message = f"The app never listened; listening: 127.0.0.1:5432 {HOSTILE}"
    rows.deploying(app, number=2, phase=Phase.BOOT, outcome=Outcome.FAILED, message=message, code="check:not_listening")
    answer = browser.get("/apps/shop/")
    text = text_of(answer)
    assert "The app never listened; listening: 127.0.0.1:5432" in text
    assert "what was live before still is. check:not_listening" in text
    assert "Deploy 2 failed" in text
    assert "Deploy 1 live release 1" in text
    assert b"<script>alert" not in answer.content


def test_a_hostile_commit_message_stays_text(browser: Client, ada: User) -> None:
    rows.live(rows.app_of(ada), subject=HOSTILE)
    for where in ("/apps/shop/", "/apps/shop/deploys/1/"):
        answer = browser.get(where)
        assert b"<script>alert" not in answer.content
        assert b"&lt;script&gt;alert(1)" in answer.content


def test_times_carry_the_exact_moment_as_their_title(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada))
    since = machine.state_since
    title = f'title="{since:%Y-%m-%d %H:%M:%S}.{since.microsecond // 1000:03d} UTC"'
    assert title in browser.get("/apps/shop/").content.decode()


@pytest.mark.parametrize("where", ["/apps/shop\0/", "/apps/../", "/apps/shop/deploys/99999999999999999999/", "/nope/"])
def test_what_does_not_exist_is_a_page_that_says_so(where: str, browser: Client, ada: User) -> None:
    rows.app_of(ada)
    assert browser.get(quote(where)).status_code == 404


def text_of(answer: Answer) -> str:
    """What a person reads, in one line."""
    return (
        " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())
        .replace(" ,", ",")
        .replace(" :", ":")
        .replace(" ;", ";")
    )
