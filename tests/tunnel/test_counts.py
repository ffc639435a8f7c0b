"""What is counted of requests, and that nothing can make the numbers grow without end."""

from __future__ import annotations

from tunnel.edge.counts import MAX_CODES, OTHER, REQUEST_BOUNDS_S, Counts, Histogram
from tunnel.wire import CAUSED, RAN, Opened


def count(counts: Counts, status: int = 200, code: str = "", *, total_s: float = 0.01, opened: Opened = RAN) -> None:
    counts.request(status, code, "fresh", 1, 2, total_s, opened)


def test_a_histogram_is_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    assert histogram.read() == ([("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)], 12.0)


def test_requests_are_counted_by_class_of_status_and_pipe() -> None:
    counts = Counts()
    for status in (200, 204, 404, 0):
        count(counts, status)
    assert counts.requests == {(2, "fresh"): 2, (4, "fresh"): 1, (0, "fresh"): 1}
    assert (counts.bytes_in, counts.bytes_out) == (4, 8)


def test_a_tunnel_is_no_long_request() -> None:
    counts = Counts()
    count(counts, 101, total_s=3600.0)
    assert counts.seconds.read()[0][-1] == ("+Inf", 0.0)
    count(counts, 200, total_s=3600.0)
    assert counts.seconds.read()[0][len(REQUEST_BOUNDS_S)] == ("+Inf", 1.0)


def test_a_wake_is_counted_with_what_it_took() -> None:
    counts = Counts()
    count(counts, opened=Opened(CAUSED, 345.0))
    buckets, total = counts.wakes[CAUSED].read()
    assert (buckets[-1], total) == (("+Inf", 1.0), 0.345)


def test_codes_without_end_are_counted_together() -> None:
    counts = Counts()
    count(counts, 502, "response:truncated (whatever)")
    for n in range(1000):
        count(counts, 503, f"host:{n}")
    assert counts.refused["response:truncated"] == 1
    assert len(counts.refused) == MAX_CODES + 1
    assert counts.refused[OTHER] == 1001 - MAX_CODES
