"""Billing in the background."""

from __future__ import annotations

from celery import shared_task

from control.billing import services


@shared_task(name="billing.charge")
def charge() -> None:
    """Charge what the intake of events did not."""
    services.charge_finished()
