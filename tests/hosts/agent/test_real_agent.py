"""The agent as a process, with a real edge before it and real QEMU machines under it: sleeps, wakes, and deaths of
each part.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hosts.wire.commands import SleepDepth, Start
from hosts.wire.events import Event, EventKind
from hosts.wire.wakes import WakeTrace
from tests.hosts.agent.real_agent import COUNTER_APP, ID, RealHost, real_host
from tests.hosts.real_host import guest_images
from tunnel.edge.limits import KEPT_IDLE_S

pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.timeout(400)]

SHIP_TIMEOUT_S = 60.0
TOP_STEPS = frozenset({"network", "load", "cont", "contract"})  # the guest's own are part of the contract
CLOCK_TOLERANCE_S = 1.0


@pytest.fixture(scope="module")
def host() -> Iterator[RealHost]:
    """One host and one machine on it for all tests here: a boot is what takes long."""
    with real_host(guest_images()) as host:
        report = host.boot(host.spec(host.add_image({"app.py": COUNTER_APP})))
        assert str(report.state) == "running", (report, host.log()[-3000:])
        yield host


def wakes(host: RealHost) -> list[WakeTrace]:
    return [e.wake for e in host.control.events if e.wake is not None]


def ended_sessions(host: RealHost) -> list[Event]:
    return [e for e in host.control.events if e.kind is EventKind.SESSION_ENDED]


def test_it_counts_through_ten_sleeps_with_the_right_time_and_fresh_randomness(host: RealHost) -> None:
    first = host.get()
    count, seen = first.count, {first.random}
    for turn in range(10):
        host.sleep(SleepDepth.SUSPENDED if turn % 2 else SleepDepth.PAUSED)
        assert len(host.qemus()) == (0 if turn % 2 else 1)
        time.sleep(1)
        answer = host.get()
        assert answer.count == count + 1
        assert answer.asked_at_s - CLOCK_TOLERANCE_S < answer.clock_s < time.time() + CLOCK_TOLERANCE_S
        assert answer.random not in seen
        count += 1
        seen.add(answer.random)


@pytest.mark.parametrize("depth", list(SleepDepth))
def test_a_wake_is_traced_from_the_access_log_to_the_apps_first_byte(host: RealHost, depth: SleepDepth) -> None:
    host.get()
    host.sleep(depth)
    known = len(wakes(host))
    time.sleep(KEPT_IDLE_S + 1)  # a kept pipe would do without a stream of its own
    answer = host.get()
    deadline = time.monotonic() + SHIP_TIMEOUT_S
    while len(wakes(host)) == known and time.monotonic() < deadline:
        time.sleep(0.2)
    (told,) = wakes(host)[known:]
    assert (told.start, told.waited, told.kept, told.code) == (Start.RESUME, 1, False, "")
    assert told.first_byte_ms is not None
    assert 0 <= told.queue_ms < told.ready_ms < told.first_byte_ms < answer.seconds * 1000
    assert sum(step.ms for step in told.steps if step.name in TOP_STEPS) <= told.ready_ms - told.queue_ms + 1
    assert {step.name for step in told.steps} >= {"cont", "contract"}
    lines: list[dict[str, Any]] = []  # the edge writes its log in batches
    while not lines and time.monotonic() < deadline:
        lines = [line for line in host.access_lines() if line["id"] == told.request]
        time.sleep(0.05)
    (line,) = lines
    assert line["wake"] == "caused"
    assert abs(line["wake_ms"] - told.ready_ms) < 1
    assert line["wake_ms"] <= line["open_ms"] <= line["first_byte_ms"] <= line["total_ms"]


def test_a_body_wakes_it_as_well_and_arrives_whole(host: RealHost) -> None:
    host.sleep(SleepDepth.SUSPENDED)
    answer = host.get(method="POST", body=b"x" * 1_000_000)
    assert answer.body.split()[3:] == ["POST", "1000000"]


def test_twenty_at_once_cause_one_wake_and_none_is_lost(host: RealHost) -> None:
    before = host.get().count
    host.sleep(SleepDepth.SUSPENDED)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: host.get(), range(20)))
    assert sorted(a.count for a in answers) == list(range(before + 1, before + 21))
    assert len(host.qemus()) == 1


def test_an_agent_killed_while_the_machine_runs_is_followed_by_one_that_adopts_it(host: RealHost) -> None:
    before, pids = host.get().count, host.qemus()
    host.kill_agent()
    assert host.qemus() == pids
    host.start_agent()
    assert host.get().count == before + 1
    assert host.qemus() == pids
    assert str(host.report().state) == "running"


@pytest.mark.parametrize("depth", list(SleepDepth))
def test_an_agent_killed_while_the_machine_sleeps_finds_it_asleep(host: RealHost, depth: SleepDepth) -> None:
    before = host.get().count
    host.sleep(depth)
    host.kill_agent()
    host.start_agent()
    assert str(host.report().state) == str(depth)
    assert host.get().count == before + 1


def test_an_agent_that_is_asked_to_stop_leaves_the_machine_running(host: RealHost) -> None:
    before, pids = host.get().count, host.qemus()
    assert host.stop_agent() == 0
    assert host.qemus() == pids
    host.start_agent()
    assert host.get().count == before + 1


def test_a_killed_qemu_is_a_cold_boot_at_the_next_request_and_not_an_error(host: RealHost) -> None:
    host.get()
    (pid,) = host.qemus()
    os.kill(pid, signal.SIGKILL)
    answer = host.get(timeout_s=120)
    assert answer.status == 200
    report = host.report().last_start
    assert report is not None
    assert report.start is Start.COLD_BOOT
    assert report.reason
    assert len(host.qemus()) == 1


def test_sessions_reach_control_whole_ordered_and_without_overlap_even_if_it_was_down(host: RealHost) -> None:
    host.control.down = True
    for _ in range(3):
        host.get()
        host.sleep(SleepDepth.PAUSED)
    known = len(ended_sessions(host))
    host.control.down = False
    deadline = time.monotonic() + SHIP_TIMEOUT_S
    while len(ended_sessions(host)) < known + 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(ended_sessions(host)) >= known + 3
    assert [e.seq for e in host.control.events] == list(range(1, len(host.control.events) + 1))
    spans = [(e.started_at_ms or 0, e.ended_at_ms or 0) for e in ended_sessions(host)]
    assert all(start <= end for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_an_app_that_never_listens_is_failed_and_shows_its_last_lines(host: RealHost) -> None:
    host.call("DELETE", f"/v1/machines/{ID}")
    spec = host.spec(host.add_image({"app.py": "print('off I go', flush=True)\nraise SystemExit(3)"}))
    report = host.boot(spec)
    assert str(report.state) == "failed"
    assert report.failure is not None
    assert report.failure.code == "app:exited"
    assert "3" in report.failure.message
    assert any("off I go" in line for line in report.log_tail)
    assert host.qemus() == []


def test_nothing_is_left_of_a_machine_that_was_deleted(host: RealHost) -> None:
    status, _ = host.call("DELETE", f"/v1/machines/{ID}")
    assert status == 200
    assert host.qemus() == []
    assert host.namespaces() == []
    assert list((host.host_dir / "machines").iterdir()) == []
    assert host.call("GET", f"/v1/machines/{ID}")[0] == 404
