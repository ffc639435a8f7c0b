"""What an app's page says of its state, its deploys, its sessions and its cost."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from control.accounts.models import User
from control.deploys.states import Outcome, Phase
from control.machines.models import Machine
from hosts.wire.events import Cause, EndCause
from hosts.wire.states import MachineState
from tests.platform.web import rows
from tests.platform.web.reading import HOSTILE, text_of


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


def test_each_wake_is_shown_with_its_cause_and_where_the_time_went(browser: Client, ada: User) -> None:
    machine = rows.live(rows.app_of(ada))
    rows.woke(machine, at=rows.ago(hours=1), waited=3)
    rows.woke(machine, at=rows.ago(hours=2), cause=Cause.API, request="", waited=0, first_byte_ms=None)
    rows.woke(machine, at=rows.ago(hours=3), start="cold_boot", reason=f"refused {HOSTILE}", first_byte_ms=None)
    rows.woke(machine, at=rows.ago(hours=4), code="boot:timeout", phase="kernel", first_byte_ms=None, steps=[])
    answer = browser.get("/apps/shop/")
    text = text_of(answer)
    assert "1 h ago request, 3 waited went on where it was e1a2b3c4-77 612 ms" in text
    assert "waited 2 ms, start 350 ms (load memory 98 ms, resume contract 252 ms), the app's answer 260 ms" in text
    assert "2 h ago by hand went on where it was 352 ms until ready waited" in text
    assert "started fresh: refused" in text
    assert "352 ms until ready, no answer" in text
    assert "4 h ago request failed in kernel: boot:timeout e1a2b3c4-77 352 ms given up" in text
    assert b"<script>alert" not in answer.content


def test_an_app_that_never_woke_shows_no_wakes(browser: Client, ada: User) -> None:
    rows.live(rows.app_of(ada))
    assert "Wakes" not in text_of(browser.get("/apps/shop/"))


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
