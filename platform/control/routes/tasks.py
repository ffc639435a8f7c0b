"""Routes in the background: every edge gets the present table again and again, so that one that was away is right
within seconds.
"""

from __future__ import annotations

from celery import shared_task

from control.routes import services


@shared_task(name="routes.republish")
def republish() -> None:
    """Publish the present table; an edge that has it already changes nothing."""
    services.publish()
