"""Times, lengths and money as a person reads them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.web import humane

NOW = dt.datetime(2026, 3, 4, 12, 0, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0.00"),
        (1, "0.000001"),
        (10, "0.00001"),
        (1_500_000, "1.50"),
        (1_234_567, "1.234567"),
        (1_234_567_890_000, "1,234,567.89"),
        (-5, "\N{MINUS SIGN}0.000005"),
    ],
)
def test_money_is_shown_to_the_last_micro(micros: int, text: str) -> None:
    assert humane.money(micros) == text


def test_money_names_its_currency_and_lines_up_in_columns() -> None:
    assert humane.money(18_000, "USD") == "0.018 USD"
    assert humane.money(18_000, decimals=humane.MICRO_DECIMALS) == "0.018000"


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_no_amount_loses_a_micro_on_its_way_to_the_page(micros: int) -> None:
    text = humane.money(micros).replace(",", "").replace("\N{MINUS SIGN}", "-")
    whole, _, fraction = text.partition(".")
    sign = -1 if text.startswith("-") else 1
    assert abs(int(whole)) * humane.MICROS_PER_UNIT + int(fraction.ljust(6, "0")) == abs(micros)
    assert micros == 0 or sign == (1 if micros > 0 else -1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (42.9, "42 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3_600, "1 h"),
        (7_500, "2 h 5 min"),
        (86_400 * 4 + 3_600, "4 d 1 h"),
    ],
)
def test_a_length_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert humane.length(seconds) == text


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (dt.timedelta(seconds=-30), "just now"),
        (dt.timedelta(seconds=3), "just now"),
        (dt.timedelta(seconds=47), "40 s ago"),
        (dt.timedelta(minutes=3, seconds=59), "3 min ago"),
        (dt.timedelta(hours=23), "23 h ago"),
        (dt.timedelta(hours=30), "yesterday"),
        (dt.timedelta(days=12), "12 days ago"),
        (dt.timedelta(days=60), "3 Jan 2026"),
    ],
)
def test_a_moment_reads_as_its_age(before: dt.timedelta, text: str) -> None:
    assert humane.ago(NOW - before, NOW) == text


def test_the_title_of_a_time_is_exact_and_in_utc() -> None:
    moment = dt.datetime(2026, 3, 4, 13, 0, 1, 234_567, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert humane.exact(moment) == "2026-03-04 12:00:01.234 UTC"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (812, "812 B"), (1_500_000, "1.4 MiB"), (3 * 2**40, "3.0 TiB")],
)
def test_sizes_are_in_binary_units(count: int, text: str) -> None:
    assert humane.size(count) == text


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (dt.timedelta(seconds=3), "for a moment"),
        (dt.timedelta(minutes=3), "for 3 min"),
        (dt.timedelta(hours=30), "for a day"),
        (dt.timedelta(days=60), "since 3 Jan 2026"),
    ],
)
def test_a_state_reads_as_how_long_it_lasts(before: dt.timedelta, text: str) -> None:
    assert humane.lasting(NOW - before, NOW) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-1.0, "0 ms"),
        (0.0, "0 ms"),
        (0.44, "0.4 ms"),
        (9.96, "10 ms"),
        (612.4, "612 ms"),
        (1400.0, "1.4 s"),
        (61_000.0, "1 min 1 s"),
    ],
)
def test_milliseconds_are_read_as_a_person_would(ms: float, text: str) -> None:
    assert humane.milliseconds(ms) == text
