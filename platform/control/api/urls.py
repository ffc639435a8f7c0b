"""The URLs of the public and the internal API."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

api_urlpatterns: list[URLPattern | URLResolver] = []
