"""Wakes that no request waits for: one a machine, and an end to what is remembered of them."""

from __future__ import annotations

from tests.tunnel.world import World, until
from tunnel.edge.limits import MAX_REMEMBERED_WAKES
from tunnel.wire import Route

BLOG = Route("blog.localhost", "m1", "h1", "blog")


async def test_a_second_begin_joins_the_first(tunnel: World) -> None:
    wakes = tunnel.edge.core.wakes
    tunnel.machine.awake = False
    assert wakes.age("m1") is None
    wakes.begin(BLOG, "r1")
    wakes.begin(BLOG, "r2")
    assert wakes.age("m1") is not None
    await until(lambda: wakes.age("m1") is None)
    assert tunnel.machine.wakes == 1
    assert tunnel.agent.opens == ["m1"]
    assert wakes.take_failure("m1") is None
    usual = wakes.usual("m1")
    assert usual is not None
    assert usual >= 0.05


async def test_a_host_that_is_away_is_a_failure_told_once(tunnel: World) -> None:
    wakes = tunnel.edge.core.wakes
    wakes.begin(Route("blog.localhost", "m9", "h1", "blog"), "r1")
    await until(lambda: wakes.age("m9") is None)
    failure = wakes.take_failure("m9")
    assert failure is not None
    assert failure.code == "machine:unknown"
    assert wakes.take_failure("m9") is None
    assert wakes.usual("m9") is None


async def test_no_more_machines_are_remembered_than_the_bound(tunnel: World) -> None:
    wakes = tunnel.edge.core.wakes
    for i in range(MAX_REMEMBERED_WAKES + 5):
        wakes._remember(f"m{i}", 1.0)
    assert wakes.usual("m4") is None
    assert wakes.usual("m5") == 1.0
