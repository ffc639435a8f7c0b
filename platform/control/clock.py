"""Where control reads the time, so that one place says it is aware UTC; and the wire's milliseconds both ways."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


def now() -> datetime:
    """The present instant, aware, in UTC."""
    return datetime.now(UTC)


def from_ms(ms: int) -> datetime:
    """Unix milliseconds as an instant; exact, unlike a float division."""
    return EPOCH + timedelta(milliseconds=ms)


def to_ms(at: datetime) -> int:
    """An instant as Unix milliseconds, rounded down."""
    return (at - EPOCH) // MS
