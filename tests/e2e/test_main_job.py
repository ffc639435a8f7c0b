"""The main job on a real box: push, microVM, preview URL, sleep, wake, bill; and what must survive."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import json
import os
import signal
import socket
import time
import urllib.error
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.bench.box import Push
from tests.e2e.conftest import RealBox
from tests.e2e.visitor import PATIENCE_S, Answer, ask, ask_until

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(600)]

NAME = "counter"
COUNTER = {
    "requirements.txt": "flask\n",
    "Procfile": "web: python app.py\n",
    "app.py": (
        "import itertools, os, time, flask\n"
        "app = flask.Flask(__name__)\ncount = itertools.count(1)\n"
        "@app.route('/', methods=['GET', 'POST', 'PUT', 'DELETE', 'PATCH'])\ndef hi():\n"
        "    n = next(count)\n"  # Flask answers in threads: `n += 1` and reading it would be two steps
        "    size = len(flask.request.get_data())\n"
        "    return f'{n} {time.time()} {os.urandom(8).hex()} {size}'\n"
        "app.run('0.0.0.0', int(os.environ['PORT']))\n"
    ),
}


@pytest.fixture(scope="module")
def counter(box: RealBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The counter app, live."""
    with box.client.app(NAME) as app:
        push = push_files(box, app, COUNTER, tmp_path_factory.mktemp("counter"))
        assert push.ok, push.output
        assert app["url"] in push.output
        box.client.call("PATCH", f"/apps/{NAME}", {"idle_period_s": 3600, "suspend_after_s": 3600})
        yield app


def push_files(box: RealBox, app: dict[str, Any], files: dict[str, str], folder: Path) -> Push:
    """Push these files to main."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return box.client.push(app["git_url"], folder)


def count(answer: Answer) -> int:
    """The counter of a 200 answer."""
    assert answer.status == 200, answer
    return int(answer.body.split()[0])


def put_to_sleep(box: RealBox, to: str, name: str = NAME) -> None:
    box.client.sleep(name, to)
    box.client.wait_state(name, to)


def sessions(box: RealBox, name: str = NAME) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = box.client.call("GET", f"/apps/{name}/sessions")
    return listed


def qemu_pids(box: RealBox) -> list[int]:
    """The QEMUs of this box, by what their machines' folders record."""
    pids = []
    for record in (box.folder / "var/host/machines").glob("*/state.json"):
        process = json.loads(record.read_text(encoding="utf-8")).get("process")
        if process:
            pids.append(int(process["pid"]))
    return pids


def test_an_unknown_name_is_answered_404(box: RealBox) -> None:
    port = box.described["preview_port"]
    assert ask(f"http://nobody-has-this.localhost:{port}/").status == 404


def test_a_wrong_token_is_401_and_an_unknown_app_is_404(box: RealBox) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        type(box.client)(api=box.client.api, token="wrong").call("GET", "/apps")
    assert refused.value.code == 401
    with pytest.raises(urllib.error.HTTPError) as unknown:
        box.client.call("GET", "/apps/nobody-has-this")
    assert unknown.value.code == 404


def test_the_sample_app_of_deploy_up_answers(box: RealBox) -> None:
    urls = [a["url"] for a in box.client.call("GET", "/apps") if a["release"]]
    assert urls
    assert ask(urls[0]).status == 200


def test_ten_sleeps_keep_count_clock_and_randomness(box: RealBox, counter: dict[str, Any]) -> None:
    seen = count(ask(counter["url"]))
    randomness = set()
    for i in range(10):
        put_to_sleep(box, "suspended" if i % 2 else "paused")
        time.sleep(0.5)
        number, clock, random, _ = ask(counter["url"]).body.split()
        assert int(number) == seen + 1 + i
        assert abs(float(clock) - time.time()) < 1
        randomness.add(random)
    assert len(randomness) == 10


def test_a_suspended_machine_has_no_process(box: RealBox, counter: dict[str, Any]) -> None:
    ask(counter["url"])
    put_to_sleep(box, "suspended")
    others = [a["name"] for a in box.client.call("GET", "/apps") if a["name"] != NAME and a["release"]]
    for name in others:
        put_to_sleep(box, "suspended", name)
    assert qemu_pids(box) == []


def test_fifty_at_once_cause_one_wake_and_all_are_answered(box: RealBox, counter: dict[str, Any]) -> None:
    seen = count(ask(counter["url"]))
    put_to_sleep(box, "suspended")
    before = len(sessions(box))
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        counts = sorted(count(a) for a in pool.map(lambda _: ask(counter["url"]), range(50)))
    assert counts == list(range(seen + 1, seen + 51))
    assert len(sessions(box)) == before + 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_any_method_with_a_body_wakes(box: RealBox, counter: dict[str, Any], method: str) -> None:
    put_to_sleep(box, "suspended")
    answer = ask(counter["url"], method=method, body=b"x" * 300_000)
    assert answer.status == 200
    assert answer.body.split()[3] == "300000"


def test_an_upgrade_wakes(box: RealBox, counter: dict[str, Any]) -> None:
    put_to_sleep(box, "paused")
    # Flask does not upgrade and says 200 (400 to a WebSocket): the machine woke and the app's own answer came through.
    assert ask(counter["url"], headers={"Connection": "Upgrade", "Upgrade": "example/1"}).status == 200


def test_it_falls_asleep_by_itself_and_wakes(box: RealBox, counter: dict[str, Any]) -> None:
    seen = count(ask(counter["url"]))
    box.client.call("PATCH", f"/apps/{NAME}", {"idle_period_s": 1, "suspend_after_s": 1})
    try:
        box.client.wait_state(NAME, "suspended", limit_s=20)
        assert count(ask(counter["url"])) == seen + 1
    finally:
        box.client.call("PATCH", f"/apps/{NAME}", {"idle_period_s": 3600, "suspend_after_s": 3600})


def test_sessions_never_overlap_and_are_charged_by_the_second(box: RealBox, counter: dict[str, Any]) -> None:
    put_to_sleep(box, "paused")
    time.sleep(2)
    listed = sorted(sessions(box), key=lambda s: s["started_at"])
    assert listed
    for earlier, later in itertools.pairwise(listed):
        assert datetime.fromisoformat(earlier["ended_at"]) <= datetime.fromisoformat(later["started_at"])
    for session in listed:
        length = datetime.fromisoformat(session["ended_at"]) - datetime.fromisoformat(session["started_at"])
        assert abs(length.total_seconds() - session["seconds"]) < 0.002
        assert session["cost_micros"] >= 0
        assert session["cause"]
    assert sum(s["cost_micros"] for s in listed) > 0


def test_with_control_stopped_apps_wake_and_the_sessions_appear_afterwards(
    box: RealBox, counter: dict[str, Any]
) -> None:
    seen = count(ask(counter["url"]))
    put_to_sleep(box, "suspended")
    before = len(sessions(box))
    control = ["web", "worker", "beat", "postgres", "redis"]
    box.ctl("stop", *control)
    try:
        assert count(ask(counter["url"])) == seen + 1
    finally:
        box.ctl("start", *reversed(control))
    box.wait_api()
    deadline = time.monotonic() + 60
    while len(sessions(box)) < before + 1:
        assert time.monotonic() < deadline, "the session of that time never appeared"
        time.sleep(0.5)


def test_kill_9_of_the_agent_leaves_the_machine_running(box: RealBox, counter: dict[str, Any]) -> None:
    seen = count(ask(counter["url"]))
    before = qemu_pids(box)
    os.kill(box.pid("host"), signal.SIGKILL)
    assert set(qemu_pids(box)) == set(before)
    assert count(ask_until(counter["url"], 200, 30)) == seen + 1
    assert set(qemu_pids(box)) == set(before)
    put_to_sleep(box, "suspended")
    assert count(ask(counter["url"])) == seen + 2


def test_kill_9_of_qemu_is_followed_by_a_cold_booted_app(box: RealBox, counter: dict[str, Any]) -> None:
    while count(ask(counter["url"])) <= 2:
        pass
    others = [a["name"] for a in box.client.call("GET", "/apps") if a["name"] != NAME and a["release"]]
    for name in others:
        put_to_sleep(box, "suspended", name)
    (pid,) = qemu_pids(box)
    os.kill(pid, signal.SIGKILL)
    # Memory is new: the count begins again, at 2 where the agent's own look at the app was counted.
    assert count(ask(counter["url"])) <= 2
    ended = [s["end_cause"] for s in sessions(box) if "end_cause" in s]
    assert not ended or "crash" in ended


def test_kill_9_of_the_edge_is_over_in_seconds_even_without_redis(box: RealBox, counter: dict[str, Any]) -> None:
    box.ctl("stop", "redis")
    try:
        os.kill(box.pid("edge"), signal.SIGKILL)
        assert ask_until(counter["url"], 200, 15).status == 200
    finally:
        box.ctl("start", "redis")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"README": "nothing here\n"}, "requirements.txt"),
        (
            {"requirements.txt": "no-such-package-burrow-test==9.9\n", "Procfile": "web: python app.py\n"},
            "no-such-package-burrow-test",
        ),
        ({"Procfile": "web: echo last words; sleep 1000\n", "app.py": ""}, "last words"),
        ({"Procfile": "web: echo gone; exit 3\n", "app.py": ""}, "gone"),
    ],
    ids=["nothing to run", "failing install", "never listens", "exits"],
)
def test_a_push_that_fails_says_why_and_the_old_release_stays_live(
    box: RealBox, counter: dict[str, Any], files: dict[str, str], said: str, tmp_path: Path
) -> None:
    seen = count(ask(counter["url"]))
    push = push_files(box, counter, files, tmp_path)
    assert not push.ok
    assert said in push.output
    assert count(ask(counter["url"])) == seen + 1
    assert box.client.call("GET", f"/apps/{NAME}/deploys")[0]["outcome"] == "failed"


def test_a_half_sent_request_survives_a_suspend(box: RealBox, counter: dict[str, Any]) -> None:
    parts = urlsplit(counter["url"])
    ask(counter["url"])
    with contextlib.closing(socket.create_connection(("127.0.0.1", parts.port or 80), timeout=PATIENCE_S)) as s:
        s.sendall(f"GET / HTTP/1.1\r\nHost: {parts.netloc}\r\n".encode())
        put_to_sleep(box, "suspended")
        s.sendall(b"Connection: close\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")


def test_two_resumes_of_a_deleted_app_are_impossible(box: RealBox, tmp_path: Path) -> None:
    with box.client.app("short-lived") as app:
        files = {"index.html": "<h1>hi</h1>\n"}
        assert push_files(box, app, files, tmp_path).ok
        assert ask(app["url"]).status == 200
        machines = set((box.folder / "var/host/machines").iterdir())
    assert ask_until(app["url"], 404, 10)
    deadline = time.monotonic() + 30
    while len(set((box.folder / "var/host/machines").iterdir())) >= len(machines):
        assert time.monotonic() < deadline, "the machine's folder outlived its app"
        time.sleep(0.5)
