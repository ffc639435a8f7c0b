"""Times, lengths and money as a person reads them.

Pure functions of their arguments: the clock is passed in. Money is never rounded: every micro of the ledger is shown.
"""

from __future__ import annotations

import datetime as dt

MICROS_PER_UNIT = 1_000_000
MICRO_DECIMALS = 6
MIN_DECIMALS = 2
SECONDS_PER_MINUTE = 60
SECONDS_PER_HOUR = 3_600
SECONDS_PER_DAY = 86_400
DAYS_SHOWN_AS_AGE = 30
MS_SHOWN_BELOW = 1000
KIB = 1024


def money(micros: int, currency: str = "", *, decimals: int = MIN_DECIMALS) -> str:
    """Integer micros exactly, with at least `decimals`: 1234567 -> "1.234567", 1500000 -> "1.50"."""
    whole, fraction = divmod(abs(micros), MICROS_PER_UNIT)
    digits = f"{fraction:06d}".rstrip("0").ljust(decimals, "0")
    sign = "\N{MINUS SIGN}" if micros < 0 else ""
    amount = f"{sign}{whole:,}.{digits}"
    return f"{amount} {currency}" if currency else amount


def length(seconds: float) -> str:
    """A length of time with its two largest units: "0.4 s", "42 s", "3 min 20 s", "2 h 5 min", "4 d 1 h"."""
    if seconds < 0:
        seconds = 0
    if seconds < 10:
        text = f"{seconds:.1f}"
        return f"{text.removesuffix('.0')} s"
    whole = int(seconds)
    if whole < SECONDS_PER_MINUTE:
        return f"{whole} s"
    if whole < SECONDS_PER_HOUR:
        return _two(whole, SECONDS_PER_MINUTE, "min", 1, "s")
    if whole < SECONDS_PER_DAY:
        return _two(whole, SECONDS_PER_HOUR, "h", SECONDS_PER_MINUTE, "min")
    return _two(whole, SECONDS_PER_DAY, "d", SECONDS_PER_HOUR, "h")


def milliseconds(ms: float) -> str:
    """A short length of time: "0.4 ms", "612 ms", then as `length` says it."""
    if ms < 10:
        text = f"{max(ms, 0.0):.1f}"
        return f"{text.removesuffix('.0')} ms"
    return f"{ms:.0f} ms" if ms < MS_SHOWN_BELOW else length(ms / 1000)


def _two(whole: int, large: int, large_word: str, small: int, small_word: str) -> str:
    first, rest = divmod(whole, large)
    second = rest // small
    return f"{first} {large_word} {second} {small_word}" if second else f"{first} {large_word}"


def ago(moment: dt.datetime, now: dt.datetime) -> str:
    """How long ago, coarse enough not to flicker; a date once it is older than a month."""
    seconds = (now - moment).total_seconds()
    if seconds < 0:  # clocks of two machines differ a little: the future reads as now
        return "just now"
    if seconds < 10:
        return "just now"
    if seconds < SECONDS_PER_MINUTE:
        return f"{int(seconds) // 10 * 10} s ago"
    if seconds < SECONDS_PER_HOUR:
        return f"{int(seconds // SECONDS_PER_MINUTE)} min ago"
    if seconds < SECONDS_PER_DAY:
        return f"{int(seconds // SECONDS_PER_HOUR)} h ago"
    days = int(seconds // SECONDS_PER_DAY)
    if days == 1:
        return "yesterday"
    if days <= DAYS_SHOWN_AS_AGE:
        return f"{days} days ago"
    return f"{moment.astimezone(dt.UTC):%-d %b %Y}"


def lasting(moment: dt.datetime, now: dt.datetime) -> str:
    """How long something has been so: "for a moment", "for 3 min"."""
    age = ago(moment, now)
    if age.endswith(" ago"):
        return f"for {age.removesuffix(' ago')}"
    if age == "just now":
        return "for a moment"
    return "for a day" if age == "yesterday" else f"since {age}"


def exact(moment: dt.datetime) -> str:
    """The title behind every humane time: to the millisecond, in UTC."""
    utc = moment.astimezone(dt.UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1000:03d} UTC"


def size(count: int) -> str:
    """Bytes in binary units: "812 B", "1.4 MiB"."""
    if count < KIB:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= KIB
        if value < KIB:
            return f"{value:.1f} {unit}"
    return f"{value / KIB:.1f} TiB"
