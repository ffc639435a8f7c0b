"""Back-off grows and is capped; jitter only ever shortens it."""

from __future__ import annotations

import pytest

from hosts.agent.clock import Clock, backoff_s


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (100, 30.0), (10**9, 30.0)]
)
def test_the_pause_doubles_up_to_its_cap(failures: int, expected: float) -> None:
    assert backoff_s(failures, first_s=0.5, cap_s=30.0) == expected


def test_jitter_is_between_half_and_all() -> None:
    pauses = [Clock().jitter(10.0) for _ in range(200)]
    assert min(pauses) >= 5.0
    assert max(pauses) <= 10.0
    assert len(set(pauses)) > 100


def test_ids_and_entropy_never_repeat() -> None:
    clock = Clock()
    assert len({clock.new_id() for _ in range(100)}) == 100
    assert len({clock.entropy(32) for _ in range(100)}) == 100
