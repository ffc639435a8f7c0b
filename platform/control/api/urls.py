"""The URLs of the public and the internal API."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path, re_path

from control.api import errors, internal
from control.api.v1 import api
from control.deploys import intake


def not_found(request: HttpRequest) -> HttpResponse:
    """An unknown path below an API is answered as the API answers, not with a page."""
    return errors.refusal("api:not_found", "There is nothing here.", 404)


api_urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", api.urls),
    path("internal/v1/hosts/<str:host_id>/events", internal.host_events, name="host-events"),
    path("internal/v1/push/check", intake.check, name="push-check"),
    path("internal/v1/push/received", intake.received, name="push-received"),
    path("internal/v1/push/follow", intake.follow, name="push-follow"),
    re_path(r"^(?:api|internal)/", not_found),
]
