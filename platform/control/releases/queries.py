"""Reads on releases."""

from __future__ import annotations

from control.applications.models import App
from control.releases.models import Release


def releases_of(app: App, *, limit: int = 50) -> list[Release]:
    """The app's releases, newest first."""
    return list(Release.objects.filter(environment__app=app).order_by("-id")[:limit])
