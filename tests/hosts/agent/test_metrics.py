"""What a scrape of the host agent says of its machines, and that it counts what was journaled."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hosts.agent import trace
from hosts.agent.metrics import HostMetrics
from hosts.wire.commands import SleepDepth
from hosts.wire.events import Cause
from hosts.wire.states import MachineState
from tests.fakes.world import App
from tests.hosts.agent.rig import ID, SETTLE_S, Rig
from tunnel.wire import Refused

SCRAPE_TIMEOUT_S = 5.0
Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
async def metrics(rig: Rig) -> AsyncIterator[HostMetrics]:
    served = HostMetrics(rig.fleet.all, rig.journal)
    await served.start("127.0.0.1", 0)
    yield served
    await served.stop()


async def scrape(served: HostMetrics) -> Samples:
    """Every sample by its name and the values of its labels, in order of their names."""
    return await asyncio.to_thread(_scrape, served.port)


def _scrape(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_TIMEOUT_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_sleeps_wakes_and_sessions_are_counted(
    rig: Rig, metrics: HostMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "WRITE_AFTER_S", 0.0)
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    await machine.wake(Cause.API, deadline_s=SETTLE_S)
    await machine.sleep(SleepDepth.PAUSED)
    async with asyncio.timeout(SETTLE_S):
        while ("burrow_host_wakes_total", ("api", "ready", "resume")) not in (found := await scrape(metrics)):
            await asyncio.sleep(0.01)
    assert found["burrow_host_wakes_total", ("api", "ready", "resume")] == 1
    assert found["burrow_host_wake_seconds_count", ("resume",)] == 1
    assert found["burrow_host_sleeps_total", ("paused",)] == 2  # suspending begins with a pause
    assert found["burrow_host_sleeps_total", ("suspended",)] == 1
    assert found["burrow_host_sessions_ended_total", ("api",)] == 2
    assert found["burrow_host_machines", ("paused",)] == 1
    assert found["burrow_host_machines", ("running",)] == 0
    assert found["burrow_host_machines_waking", ()] == 0
    assert found["burrow_host_journal_events", ()] == rig.journal.unshipped > 0
    assert found["burrow_host_journal_bytes", ()] > 0
    assert not [labels for _, labels in found if ID in labels or "blog" in labels]


async def test_a_wake_that_fails_is_counted_as_failed(
    rig: Rig, metrics: HostMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "WRITE_AFTER_S", 0.0)
    machine = await rig.machine()
    rig.world.alive(ID)[0].end()
    await rig.settle(machine, MachineState.STOPPED)
    rig.world.apps[ID] = App(listens=False)
    with pytest.raises(Refused):
        await rig.streams.open_machine(ID, may_wake=True, request="r")
    async with asyncio.timeout(SETTLE_S):
        while ("burrow_host_wakes_total", ("request", "failed", "cold_boot")) not in (found := await scrape(metrics)):
            await asyncio.sleep(0.01)
    assert ("burrow_host_wake_seconds_count", ("cold_boot",)) not in found


async def test_once_stopped_nothing_is_served(rig: Rig, metrics: HostMetrics) -> None:
    await metrics.stop()
    with pytest.raises(urllib.error.URLError):
        await scrape(metrics)
