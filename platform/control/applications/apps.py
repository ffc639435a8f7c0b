from __future__ import annotations

from django.apps import AppConfig


class ApplicationsConfig(AppConfig):
    name = "control.applications"
    label = "applications"
