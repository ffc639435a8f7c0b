"""The dashboard in a real browser: a newcomer's way, live parts, keyboard, phone and desktop, light and dark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from control.accounts.models import User
from control.deploys.models import Deploy
from control.deploys.states import Outcome, Phase
from control.machines.models import Machine
from hosts.wire.events import Cause
from hosts.wire.states import MachineState
from tests.platform.fakehost import FakeHost
from tests.platform.web import rows
from tests.platform.web.browser import Chromium

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

PHONE = (390, 844)
DESKTOP = (1280, 900)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """One browser for all of these tests; each signs in anew."""
    with Chromium() as started:
        yield started


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Chromium]:
    """The browser without cookies; whatever a test did, no page may have complained of its own code."""
    chromium.forget()
    chromium.screen(*DESKTOP)
    yield chromium
    chromium.go("about:blank")
    assert chromium.complaints() == []


def sign_in(page: Chromium, server: LiveServer) -> User:
    """As a person does it."""
    user = rows.person()
    page.go(f"{server.url}/login/")
    page.fill("[name=email]", "ada@example.org")
    page.fill("[name=password]", rows.PASSWORD)
    page.click("main button[type=submit]")
    page.until_text("Put your first app online")
    return user


def test_a_newcomer_signs_up_makes_an_app_and_reads_how_to_push(page: Chromium, live_server: LiveServer) -> None:
    page.screen(*PHONE)
    page.go(f"{live_server.url}/")
    page.until_text("Welcome back")
    page.click("p.below a")
    page.until_text("Make an account")
    page.fill("[name=email]", "grace@example.org")
    page.fill("[name=password]", rows.PASSWORD)
    page.press_enter()
    page.until_text("Put your first app online")
    page.fill("[name=name]", "first-app")
    page.click("main button[type=submit]")
    page.until_text("git push http://127.0.0.1:8000/first-app.git main")
    page.click("a[href='/tokens/']")
    page.until_text("API tokens")
    page.fill("[name=name]", "laptop")
    page.click("main form button[type=submit]")
    page.until_text("copy it now")


def test_the_page_follows_a_deploy_to_the_end(page: Chromium, live_server: LiveServer) -> None:
    user = sign_in(page, live_server)
    app = rows.app_of(user)
    deploy = rows.deploying(app, phase=Phase.BUILD, lines=[f"line {number}" for number in range(60)])
    page.go(f"{live_server.url}/apps/shop/")
    page.until_text("line 59")
    assert "under way" in page.text()
    rows.say(deploy, "Collecting <b>flask</b>", *[f"more {number}" for number in range(40)])
    page.until_text("Collecting <b>flask</b>")
    page.until_text("more 39")
    page.until("(e => e.scrollHeight - e.scrollTop - e.clientHeight < 40)(document.querySelector('.log'))")
    Deploy.objects.filter(id=deploy.id).update(outcome=Outcome.FAILED.value, message="The app never listened.")
    page.until_text("The app never listened.")
    page.until("document.querySelector('.log-wait') === null")


def test_the_buttons_act_on_the_spot_and_keep_the_keyboards_place(
    page: Chromium, live_server: LiveServer, host: FakeHost
) -> None:
    user = sign_in(page, live_server)
    machine = rows.live(rows.app_of(user))
    rows.on_host(host, machine)
    page.go(f"{live_server.url}/apps/shop/")
    page.run("window.same = true")
    page.click("#sleep-button")
    page.until_text("wakes on use: costs disk only")
    assert page.run("window.same") is True, "the page was not loaded anew"
    page.run("document.querySelector('#open-button').focus()")
    Machine.objects.filter(id=machine.id).update(state=MachineState.RUNNING.value)  # a visitor came
    page.until_text("serving: costs 0.018 USD an hour")
    assert page.run("document.activeElement.id") == "open-button"


def test_nobody_looking_means_no_polling(page: Chromium, live_server: LiveServer) -> None:
    user = sign_in(page, live_server)
    machine = rows.live(rows.app_of(user))
    page.go(f"{live_server.url}/apps/shop/")
    page.hide(hidden=True)
    Machine.objects.filter(id=machine.id).update(state=MachineState.PAUSED.value)
    time.sleep(3)  # longer than a poll takes to come
    assert "asleep" not in page.text()
    page.hide(hidden=False)
    page.until_text("asleep", timeout_s=2)


def test_a_page_that_gets_no_answers_says_so_until_it_does(page: Chromium, live_server: LiveServer) -> None:
    user = sign_in(page, live_server)
    rows.live(rows.app_of(user))
    page.go(f"{live_server.url}/apps/shop/")
    assert "does not answer just now" not in page.text()
    page.offline(yes=True)
    page.until_text("does not answer just now")
    page.offline(yes=False)
    page.until("!document.body.innerText.includes('does not answer just now')")


def test_everything_works_without_scripts(page: Chromium, live_server: LiveServer, host: FakeHost) -> None:
    user = sign_in(page, live_server)
    machine = rows.live(rows.app_of(user))
    rows.on_host(host, machine)
    page.screen(*PHONE, script=False)
    page.go(f"{live_server.url}/apps/shop/")
    page.click("#sleep-button")
    page.until_text("wakes on use: costs disk only")
    page.fill("[name=idle_period_s]", "90")
    page.click("form[action$='/policy/'] button")
    page.until_text("Saved.")


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_the_screen_or_hard_to_read(
    size: tuple[int, int], scheme: str, page: Chromium, live_server: LiveServer
) -> None:
    user = sign_in(page, live_server)
    furnish(user)
    page.screen(*size, dark=scheme == "dark")
    folder = os.environ.get("SCREENSHOTS")  # a folder, for whoever wants to look
    for name, where in PAGES.items():
        page.go(f"{live_server.url}{where}")
        assert page.run("document.documentElement.scrollWidth") <= size[0], f"{where} is too wide"
        assert page.run(FAINT) == [], where
        if folder:
            page.picture(Path(folder) / f"{name}-{size[0]}-{scheme}.png")


PAGES = {
    "apps": "/",
    "new": "/new/",
    "running": "/apps/shop/",
    "asleep": "/apps/handbook/",
    "deploying": "/apps/engine/",
    "failed": "/apps/a-name-as-long-as-names-may-ever-become0/",
    "empty": "/apps/idea/",
    "deploy": "/apps/shop/deploys/1/",
    "tokens": "/tokens/",
    "account": "/account/",
    "404": "/nowhere/",
}

# Every element with text of its own, against the nearest background that is not transparent: WCAG AA asks for 4.5.
FAINT = """(() => {
  const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
  const lum = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const faint = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || !e.checkVisibility() || e.closest('svg')) continue;
    let at = e;
    while (at && (rgb(getComputedStyle(at).backgroundColor)[3] ?? 1) < 1) at = at.parentElement;
    const ground = lum(rgb(at ? getComputedStyle(at).backgroundColor : 'rgb(255, 255, 255)'));
    const ink = lum(rgb(getComputedStyle(e).color));
    const ratio = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
    if (ratio < 4.5) faint.push(`${e.tagName} ${e.className} "${e.textContent.trim()}" ${ratio.toFixed(2)}`);
  }
  return faint;
})()"""


def furnish(user: User) -> None:
    """A person's apps in every state that is worth seeing."""
    shop = rows.app_of(user, "shop")
    rows.live(shop, number=1, at=rows.ago(days=2), subject="First")
    message = "The app never listened. Waited 60 s for port 8080; listening: 127.0.0.1:5432."
    rows.deploying(
        shop,
        number=2,
        phase=Phase.BOOT,
        outcome=Outcome.FAILED,
        at=rows.ago(hours=20),
        message=message,
        code="check:not_listening",
        subject="Listen elsewhere",
    )
    log = ["Detected Python: requirements.txt, Procfile", "uv pip install -r requirements.txt", "Resolved 7 packages"]
    machine = rows.live(shop, number=3, at=rows.ago(minutes=9), lines=log)
    rows.ran(machine, started=rows.ago(hours=9), seconds=4000)
    rows.ran(machine, started=rows.ago(hours=3), seconds=200.2)
    rows.ran(machine, started=rows.ago(seconds=47), seconds=None)
    guest = ("clock", "entropy", "network", "thaw")
    steps = [{"name": name, "ms": 41.5} for name in ("network", "load", "cont", "contract", *guest)]
    rows.woke(machine, at=rows.ago(seconds=47), waited=4, steps=steps)
    rows.woke(machine, at=rows.ago(hours=3), cause=Cause.API, request="", waited=0, first_byte_ms=None)
    lost = "the snapshot was refused: the memory file is not the one of the manifest (snapshot:memory_differs)"
    rows.woke(machine, at=rows.ago(hours=9), start="cold_boot", reason=lost, ready_ms=9300.0, first_byte_ms=9700.0)
    rows.woke(machine, at=rows.ago(hours=10), code="boot:timeout", phase="kernel", first_byte_ms=None, steps=[])
    docs = rows.live(rows.app_of(user, "handbook"), state=MachineState.SUSPENDED, at=rows.ago(days=12))
    rows.ran(docs, started=rows.ago(days=12), seconds=86_000.5)
    rows.deploying(rows.app_of(user, "engine"), phase=Phase.BUILD, at=rows.ago(seconds=20), lines=log)
    broken = rows.live(rows.app_of(user, "a-name-as-long-as-names-may-ever-become0"), state=MachineState.FAILED)
    Machine.objects.filter(id=broken.id).update(detail="It exited with code 1 three times: No module named 'flask'.")
    rows.app_of(user, "idea")
