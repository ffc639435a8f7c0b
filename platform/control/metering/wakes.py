"""Wakes as hosts traced them: stored once each, shown newest first, forgotten in time.

They explain and are not billed: each is its own row, found by the event's id, and one that comes again after it was
forgotten is only kept a little longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from control import clock
from control.applications.models import App
from control.machines.models import Machine
from control.metering.models import Wake
from hosts.wire.events import Event
from hosts.wire.wakes import Step, WakeTrace

KEPT = timedelta(days=14)
KEPT_EACH = 500  # of one environment
FORGET_AT_ONCE = 10_000  # rows in one go; the rest goes next time
STEPS_MAX = 64
TEXT_CHARS = 1000
MS_MAX = 1e9
COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class WakeView:
    """A wake, for whoever asks why their app took so long."""

    id: str
    asked_at: datetime
    cause: str
    request: str
    kept: bool
    waited: int
    start: str
    reason: str
    queue_ms: float
    ready_ms: float
    first_byte_ms: float | None
    code: str
    phase: str
    steps: tuple[Step, ...]


def take_wake(machine: Machine, event: Event, trace: WakeTrace) -> None:
    """Store a wake, if it is not there yet."""
    row = Wake(
        event_id=event.event_id,
        machine=machine,
        environment_id=machine.environment_id,
        asked_at=clock.from_ms(trace.at_ms),
        cause=event.cause.value if event.cause is not None else "",
        request=_text(trace.request, 64),
        kept=trace.kept,
        waited=min(max(trace.waited, 0), COUNT_MAX),
        start=trace.start.value if trace.start is not None else "",
        reason=_text(trace.reason, TEXT_CHARS),
        queue_ms=_ms(trace.queue_ms),
        ready_ms=_ms(trace.ready_ms),
        first_byte_ms=None if trace.first_byte_ms is None else _ms(trace.first_byte_ms),
        code=_text(trace.code, 80),
        phase=_text(trace.phase, 40),
        steps=[{"name": _text(step.name, 40), "ms": _ms(step.ms)} for step in trace.steps[:STEPS_MAX]],
    )
    Wake.objects.bulk_create([row], ignore_conflicts=True)


def wakes_of(app: App, *, limit: int = 100, before: datetime | None = None) -> list[WakeView]:
    """The app's wakes, newest first."""
    rows = Wake.objects.filter(environment__app=app)
    if before is not None:
        rows = rows.filter(asked_at__lt=before)
    return [
        WakeView(
            id=row.event_id,
            asked_at=row.asked_at,
            cause=row.cause,
            request=row.request,
            kept=row.kept,
            waited=row.waited,
            start=row.start,
            reason=row.reason,
            queue_ms=row.queue_ms,
            ready_ms=row.ready_ms,
            first_byte_ms=row.first_byte_ms,
            code=row.code,
            phase=row.phase,
            steps=tuple(Step(step["name"], step["ms"]) for step in row.steps),
        )
        for row in rows.order_by("-asked_at", "-event_id")[:limit]
    ]


def forget_wakes() -> int:
    """Delete what is too old, or beyond the newest of its environment; how many there were."""
    newest_first = Window(
        RowNumber(), partition_by=[F("environment_id")], order_by=[F("asked_at").desc(), F("event_id").desc()]
    )
    old = Wake.objects.filter(received_at__lt=clock.now() - KEPT).values_list("event_id", flat=True)
    many = Wake.objects.annotate(nth=newest_first).filter(nth__gt=KEPT_EACH).values_list("event_id", flat=True)
    forgotten = 0
    for ids in (old, many):
        forgotten += Wake.objects.filter(event_id__in=list(ids[:FORGET_AT_ONCE])).delete()[0]
    return forgotten


def _text(text: str, limit: int) -> str:
    """Postgres takes no NUL, and half a surrogate pair is no text."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:limit]


def _ms(ms: float) -> float:
    return min(max(ms, 0.0), MS_MAX) if math.isfinite(ms) else 0.0
