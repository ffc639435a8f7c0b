"""The URLs of git over HTTP."""

from __future__ import annotations

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
