"""What a scrape of the edge says after real requests; and that nothing is served unless it is asked for."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.tunnel.world import World
from tunnel.wire import CAUSED, Code, Opened, Refused

SCRAPE_TIMEOUT_S = 5.0


def scrape(port: int) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and the values of its labels, in order of their names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_TIMEOUT_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_scrape_says_what_the_edge_did(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.config = replace(world.config, metrics=("127.0.0.1", 0))
    await world.start()
    try:
        world.agent.opened = Opened(CAUSED, 200.5)
        await world.get()
        await world.get()
        await world.get(host="other.localhost")
        world.machine.refuses = Refused(Code.WAKE_FAILED, "resume", "no")
        await world.get(method="POST")
        port = world.edge.metrics_port
        found = await asyncio.to_thread(scrape, port)
    finally:
        await world.stop()
    assert found["burrow_edge_requests_total", ("fresh", "2xx")] == 1
    assert found["burrow_edge_requests_total", ("kept", "2xx")] == 1
    assert found["burrow_edge_requests_total", ("none", "4xx")] == 1
    assert found["burrow_edge_failures_total", ("route:unknown",)] == 1
    assert found["burrow_edge_failures_total", ("wake:failed",)] == 1
    assert found["burrow_edge_bytes_out_total", ()] == 10
    assert found["burrow_edge_request_seconds_count", ()] == 4
    assert found["burrow_edge_wake_wait_seconds_count", ("caused",)] == 1
    assert found["burrow_edge_wake_wait_seconds_sum", ("caused",)] == pytest.approx(0.2005)
    assert found["burrow_edge_links", ()] == 1
    assert found["burrow_edge_hosts_away", ()] == 0
    assert found["burrow_edge_kept_pipes", ()] == 1
    assert found["burrow_edge_requests_in_flight", ()] == 0
    assert found["burrow_edge_streams_opening", ()] == 0
    assert found["burrow_edge_routes", ()] == 1
    assert not [labels for _, labels in found if "blog" in "".join(labels)]
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(scrape, port)


async def test_without_the_setting_nothing_is_served(tunnel: World) -> None:
    assert tunnel.edge.metrics_port == 0
