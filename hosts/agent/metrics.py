"""The host agent's numbers for Prometheus, on an address of loopback that the operator names.

What happened is counted from the events that were journaled, so the numbers and the sessions tell one story; what is
just now is read when somebody asks, by a thread that holds up no machine. Nothing is labelled by app or machine.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hosts.agent.journal import Journal
from hosts.agent.machine import Machine
from hosts.wire.events import Event, EventKind
from hosts.wire.states import MachineState

WAKE_BOUNDS_S = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
NOT_BEGUN = "none"  # a wake that was refused before a start of any kind
SLEEPS = frozenset({MachineState.PAUSED, MachineState.SUSPENDED})


class HostMetrics(Collector):
    """What one agent has done since it started, and what it has now."""

    def __init__(self, machines: Callable[[], list[Machine]], journal: Journal) -> None:
        self._machines = machines
        self._journal = journal
        self._server_end: Callable[[], None] | None = None
        self.port = 0
        self.registry = registry = CollectorRegistry()
        self._wakes = Counter(
            "burrow_host_wakes", "Wakes by request or API", ["start", "outcome", "cause"], registry=registry
        )
        self._wake_seconds = Histogram(
            "burrow_host_wake_seconds",
            "From the request's arrival at the host until bytes could pass",
            ["start"],
            buckets=WAKE_BOUNDS_S,
            registry=registry,
        )
        self._sleeps = Counter("burrow_host_sleeps", "Machines put to sleep", ["to"], registry=registry)
        self._sessions = Counter("burrow_host_sessions_ended", "Sessions that ended", ["cause"], registry=registry)
        registry.register(self)
        journal.told = self.note

    def note(self, event: Event) -> None:
        """An event was journaled."""
        if event.wake is not None:
            wake = event.wake
            start = wake.start.value if wake.start is not None else NOT_BEGUN
            outcome = "failed" if wake.code else "ready"
            self._wakes.labels(start, outcome, event.cause.value if event.cause is not None else "").inc()
            if not wake.code:
                self._wake_seconds.labels(start).observe(wake.ready_ms / 1000)
        elif event.kind is EventKind.SESSION_ENDED:
            self._sessions.labels(event.end_cause.value if event.end_cause is not None else "").inc()
        elif event.state in SLEEPS and not event.code:  # with a code it is back where it was, for a resume failed
            self._sleeps.labels(event.state.value).inc()

    def collect(self) -> Iterator[Metric]:
        """What is now."""
        machines = self._machines()
        states = Tally(machine.history.state for machine in machines)
        by_state = GaugeMetricFamily("burrow_host_machines", "Machines by state", labels=["state"])
        for state in MachineState:
            by_state.add_metric([state.value], states[state])
        yield by_state
        waking = sum(machine.waking for machine in machines)
        yield GaugeMetricFamily("burrow_host_machines_waking", "Machines whose start is under way", value=waking)
        in_flight = sum(machine.activity.in_flight for machine in machines)
        yield GaugeMetricFamily("burrow_host_requests_in_flight", "Requests that edges have under way", value=in_flight)
        yield GaugeMetricFamily(
            "burrow_host_journal_events", "Events that control has not taken yet", value=self._journal.unshipped
        )
        yield GaugeMetricFamily("burrow_host_journal_bytes", "Size of the journal", value=self._journal.size_bytes)

    async def start(self, host: str, port: int) -> None:
        """Answer GET /metrics there, or OSError."""
        # In a thread: it looks up the address's name, and that may take a resolver's time.
        server, _ = await asyncio.to_thread(start_http_server, port, host, self.registry)
        self.port = server.server_port

        def end() -> None:
            server.shutdown()
            server.server_close()

        self._server_end = end

    async def stop(self) -> None:
        """Answer no more. Nothing happens if it did not."""
        end, self._server_end = self._server_end, None
        if end is not None:
            await asyncio.to_thread(end)
