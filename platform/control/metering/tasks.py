"""Metering in the background."""

from __future__ import annotations

from celery import shared_task

from control.metering import services, wakes


@shared_task(name="metering.close_orphans")
def close_orphans() -> None:
    """End sessions whose host will never say so."""
    services.close_orphans()


@shared_task(name="metering.forget_wakes")
def forget_wakes() -> None:
    """Keep the record of wakes within bounds."""
    wakes.forget_wakes()
