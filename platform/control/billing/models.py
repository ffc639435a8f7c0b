"""The ledger: append-only charges in integer micro-units.

Postgres refuses to change, delete or truncate it (trigger in migration 0002).
"""

from __future__ import annotations

from django.db import models

from control import clock
from control.applications.models import App
from control.metering.models import Session


class Entry(models.Model):
    """One charge for one session: milliseconds x rate, rounded down to whole micro-units (`rates.charge_micros`)."""

    app = models.ForeignKey(App, on_delete=models.PROTECT, related_name="entries")
    session = models.OneToOneField(Session, on_delete=models.PROTECT, related_name="entry")
    size = models.CharField(max_length=20)
    milliseconds = models.PositiveBigIntegerField()
    rate_micros_per_s = models.PositiveIntegerField()
    amount_micros = models.PositiveBigIntegerField()
    created_at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        indexes = [models.Index(fields=["app", "created_at"], name="entry_app_created")]

    def __str__(self) -> str:
        return f"{self.amount_micros} micros"
