"""In-flight counts: a rise is said at once, a fall a moment later, and nobody is told the same twice."""

from __future__ import annotations

import asyncio

import pytest

from tunnel.edge.activity import Activity

Said = list[tuple[str, str, int]]


@pytest.fixture
def said() -> Said:
    return []


@pytest.fixture
def activity(said: Said) -> Activity:
    return Activity(lambda host, machine, n, quiet: said.append((host, machine, n)))


async def test_a_rise_is_said_at_once_and_a_fall_after_a_moment(activity: Activity, said: Said) -> None:
    activity.begin("h", "m")
    assert said == [("h", "m", 1)]
    activity.end("m")
    assert said == [("h", "m", 1)]
    await asyncio.sleep(0.05)
    assert said == [("h", "m", 1), ("h", "m", 0)]
    activity.begin("h", "m")
    assert said[2:] == [("h", "m", 1)]


async def test_a_short_pause_between_requests_is_not_said(activity: Activity, said: Said) -> None:
    for _ in range(5):
        activity.begin("h", "m")
        activity.end("m")
    await asyncio.sleep(0.05)
    assert said == [("h", "m", 1), ("h", "m", 0)]


async def test_counts_in_between_are_said_when_it_is_time(activity: Activity, said: Said) -> None:
    for _ in range(3):
        activity.begin("h", "m")
    assert said == [("h", "m", 1)]
    activity.update()
    activity.update()
    assert said == [("h", "m", 1), ("h", "m", 3)]
    assert activity.in_flight("m") == 3


async def test_a_host_that_linked_again_is_told_all_of_its_own(activity: Activity, said: Said) -> None:
    activity.begin("h", "m1")
    activity.begin("h", "m2")
    activity.begin("g", "m3")
    activity.end("m2")
    said.clear()
    activity.repeat("h")
    assert said == [("h", "m1", 1)]


async def test_a_request_right_after_the_link_was_made_anew_is_said(activity: Activity, said: Said) -> None:
    activity.begin("h", "m")
    activity.end("m")
    said.clear()
    activity.repeat("h")
    activity.begin("h", "m")
    assert said == [("h", "m", 1)]
    await asyncio.sleep(0.05)
    assert said == [("h", "m", 1)]
    activity.end("m")
    await asyncio.sleep(0.05)
    assert said == [("h", "m", 1), ("h", "m", 0)]


async def test_a_machine_that_moved_is_said_to_its_new_host(activity: Activity, said: Said) -> None:
    activity.begin("h", "m")
    activity.end("m")
    activity.begin("g", "m")
    assert said[-1] == ("g", "m", 1)
    activity.end("m")
    activity.flush()
    assert said[-1] == ("g", "m", 0)


async def test_quiet_requests_are_said_as_such_until_another_is_in_flight() -> None:
    told: list[tuple[int, bool]] = []
    activity = Activity(lambda host, machine, n, quiet: told.append((n, quiet)))
    activity.begin("h", "m", quiet=True)
    activity.end("m")
    activity.flush()
    assert told == [(1, True), (0, True)]
    activity.begin("h", "m", quiet=True)
    activity.begin("h", "m")
    activity.begin("h", "m", quiet=True)
    for _ in range(3):
        activity.end("m")
    activity.flush()
    assert told[2:] == [(1, True), (2, False), (0, False)]


async def test_a_request_soon_after_a_quiet_one_is_said() -> None:
    told: list[tuple[int, bool]] = []
    activity = Activity(lambda host, machine, n, quiet: told.append((n, quiet)))
    activity.begin("h", "m", quiet=True)
    activity.end("m")
    activity.begin("h", "m")
    activity.end("m")
    activity.flush()
    assert told == [(1, True), (1, False), (0, False)]
