"""The edge's numbers for Prometheus, on an address of loopback that the operator names.

A thread of its own answers scrapes, so a scrape holds up no request. Nothing is labelled by app: names of apps are
not for everyone on the machine, and there is no end to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tunnel.edge.core import Core
from tunnel.edge.hosts import Hosts


class EdgeMetrics(Collector):
    """Reads an edge when asked."""

    def __init__(self, core: Core, hosts: Hosts) -> None:
        self._core = core
        self._hosts = hosts

    def collect(self) -> Iterator[Metric]:
        counts = self._core.access.counts
        requests = CounterMetricFamily(
            "burrow_edge_requests", "Requests answered, by class of status and kind of pipe", labels=["status", "pipe"]
        )
        for (hundreds, pipe), count in dict(counts.requests).items():
            requests.add_metric([f"{hundreds}xx", pipe or "none"], count)
        yield requests
        codes = CounterMetricFamily(
            "burrow_edge_failures", "Requests that ended with a code of the edge's", labels=["code"]
        )
        for code, count in dict(counts.refused).items():
            codes.add_metric([code], count)
        yield codes
        yield CounterMetricFamily("burrow_edge_bytes_in", "Bytes of requests' bodies", value=counts.bytes_in)
        yield CounterMetricFamily("burrow_edge_bytes_out", "Bytes of answers' bodies", value=counts.bytes_out)
        buckets, total = counts.seconds.read()
        yield HistogramMetricFamily(
            "burrow_edge_request_seconds",
            "From a request's head to the end of its answer",
            buckets=buckets,
            sum_value=total,
        )
        wakes = HistogramMetricFamily(
            "burrow_edge_wake_wait_seconds", "What requests waited for a wake, their own or another's", labels=["wake"]
        )
        for wake, histogram in counts.wakes.items():
            buckets, total = histogram.read()
            wakes.add_metric([wake], buckets, total)
        yield wakes
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        core = self._core
        linked, away = self._hosts.counts()
        for name, help_text, value in (
            ("client_connections", "Connections of clients that are open", len(core.clients)),
            ("requests_in_flight", "Requests under way", core.activity.total()),
            ("streams_opening", "Requests without a stream yet: most wait for a wake", core.streams.room.waiters),
            ("kept_pipes", "Idle pipes kept for the next request", core.kept.count()),
            ("links", "Hosts with a live link", linked),
            ("hosts_away", "Hosts that had a link, or are asked for, and have none", away),
            ("routes", "Hostnames served", len(core.router)),
            (
                "access_lines_lost",
                "Lines of the access log not written since the last one that says so",
                core.access.lost,
            ),
        ):
            yield GaugeMetricFamily(f"burrow_edge_{name}", help_text, value=value)


class MetricsServer:
    """Answers GET /metrics."""

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        self.port = 0

    async def start(self, address: tuple[str, int]) -> None:
        """Listen, or OSError."""
        host, port = address
        # In a thread: it looks up the address's name, and that may take a resolver's time.
        self._server, _ = await asyncio.to_thread(start_http_server, port, host, self._registry)
        self.port = self._server.server_port

    async def stop(self) -> None:
        """Stop listening."""
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()
