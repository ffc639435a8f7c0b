"""Milliseconds and instants, exactly both ways."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from control import clock


@given(st.integers(min_value=0, max_value=4_102_444_800_000))
def test_no_millisecond_is_lost(ms: int) -> None:
    assert clock.to_ms(clock.from_ms(ms)) == ms


def test_an_instant_is_rounded_down() -> None:
    assert clock.to_ms(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=1999)) == 1


def test_now_is_aware() -> None:
    assert clock.now().tzinfo is UTC
