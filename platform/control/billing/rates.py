"""Prices and the one rounding rule. Pure integers: no float ever touches money.

Rounding: a session is charged its exact milliseconds times the rate, rounded *down* to whole micro-units, once per
session. So the platform never takes a fraction it did not earn, and the sum of a statement is the sum of its lines.
"""

from __future__ import annotations

from control.applications.sizes import SizeName

CURRENCY = "USD"
MICROS_PER_UNIT = 1_000_000
MS_PER_S = 1000

# Micro-dollars per second a machine runs: small is 0.018 USD an hour. Asleep costs nothing.
RATES_MICROS_PER_S: dict[SizeName, int] = {
    SizeName.SMALL: 5,
    SizeName.MEDIUM: 10,
    SizeName.LARGE: 20,
}


def rate_micros_per_s(size: str) -> int:
    """The price of a size."""
    return RATES_MICROS_PER_S[SizeName(size)]


def charge_micros(milliseconds: int, rate: int) -> int:
    """What so many milliseconds cost."""
    return milliseconds * rate // MS_PER_S
