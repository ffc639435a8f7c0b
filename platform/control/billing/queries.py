"""Reads on the bill: sessions with their cost, and cost to date.

What still runs is counted up to now, at its rate, and not yet in the ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from control import clock
from control.applications.models import App
from control.billing.models import Entry
from control.billing.rates import MS_PER_S, charge_micros, rate_micros_per_s
from control.metering.models import Session


@dataclass(frozen=True, slots=True)
class BilledSession:
    """A session and what it costs."""

    id: str
    started_at: datetime
    ended_at: datetime | None
    seconds: float
    cause: str
    end_cause: str
    size: str
    cost_micros: int


@dataclass(frozen=True, slots=True)
class Totals:
    """An app's whole past."""

    seconds: float
    cost_micros: int


def sessions_of(app: App, *, limit: int = 100, before: datetime | None = None) -> list[BilledSession]:
    """The app's sessions, newest first; one that is open has no end and is counted up to now."""
    rows = Session.objects.filter(environment__app=app)
    if before is not None:
        rows = rows.filter(started_at__lt=before)
    now = clock.now()
    views = []
    for row in rows.order_by("-started_at", "-id")[:limit]:
        milliseconds = _milliseconds(row, now)
        views.append(
            BilledSession(
                id=row.id,
                started_at=row.started_at,
                ended_at=row.ended_at,
                seconds=milliseconds / MS_PER_S,
                cause=row.cause,
                end_cause=row.end_cause,
                size=row.size,
                cost_micros=charge_micros(milliseconds, rate_micros_per_s(row.size)),
            )
        )
    return views


def totals(app: App) -> Totals:
    """Seconds and cost to date."""
    past = Entry.objects.filter(app=app).aggregate(ms=Sum("milliseconds"), micros=Sum("amount_micros"))
    milliseconds, micros = past["ms"] or 0, past["micros"] or 0
    now = clock.now()
    for row in _uncharged([app]):
        ms = _milliseconds(row, now)
        milliseconds += ms
        micros += charge_micros(ms, rate_micros_per_s(row.size))
    return Totals(seconds=milliseconds / MS_PER_S, cost_micros=micros)


def costs(apps: Iterable[App]) -> dict[uuid.UUID, int]:
    """Cost to date of several apps, with two queries."""
    apps = list(apps)
    found = dict.fromkeys((a.id for a in apps), 0)
    for app_id, micros in (
        Entry.objects.filter(app__in=apps).values_list("app").annotate(micros=Sum("amount_micros")).order_by()
    ):
        found[app_id] += micros
    now = clock.now()
    for row in _uncharged(apps):
        found[row.environment.app_id] += charge_micros(_milliseconds(row, now), rate_micros_per_s(row.size))
    return found


def _uncharged(apps: Iterable[App]) -> Iterable[Session]:
    return Session.objects.select_related("environment").filter(environment__app__in=apps, entry=None)


def _milliseconds(row: Session, now: datetime) -> int:
    """Exact for an ended session; for one that another followed, up to there; else up to now."""
    end = row.ended_at or row.during.upper or max(now, row.started_at)
    return clock.to_ms(end) - clock.to_ms(row.started_at)
