"""Sources in the background."""

from __future__ import annotations

from celery import shared_task

from control.sources import repositories, spool


@shared_task(name="sources.clean")
def clean() -> None:
    """Drop what nobody will come for."""
    spool.clean()
    repositories.clean()
