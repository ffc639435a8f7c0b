"""Parts that keep themselves fresh: a poll brings what changed and nothing else."""

from __future__ import annotations

from django.test import Client

from control.accounts.models import User
from control.deploys.models import Deploy
from control.deploys.states import Outcome, Phase
from control.machines.models import Machine
from hosts.wire.states import MachineState
from tests.platform.web import rows
from tests.platform.web.reading import HTMX, changed, marks


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
