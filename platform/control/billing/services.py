"""Charges sessions.

It asks for what is not charged yet instead of being told, so a lost message or a crash loses no money and charges
nothing twice.
"""

from __future__ import annotations

from control import clock
from control.billing.models import Entry
from control.billing.rates import charge_micros, rate_micros_per_s
from control.metering.models import Session

CHARGE_MAX = 1000


def charge_finished() -> int:
    """One entry for each ended session that has none yet; how many sessions were looked at."""
    due = list(
        Session.objects.select_related("environment")
        .filter(entry=None)
        .exclude(ended_at=None)
        .order_by("ended_at")[:CHARGE_MAX]
    )
    Entry.objects.bulk_create([_entry(s) for s in due], ignore_conflicts=True)
    return len(due)


def _entry(session: Session) -> Entry:
    assert session.ended_at is not None  # noqa: S101 - asked for above
    milliseconds = clock.to_ms(session.ended_at) - clock.to_ms(session.started_at)
    rate = rate_micros_per_s(session.size)
    return Entry(
        app_id=session.environment.app_id,
        session=session,
        size=session.size,
        milliseconds=milliseconds,
        rate_micros_per_s=rate,
        amount_micros=charge_micros(milliseconds, rate),
    )
