from __future__ import annotations

from django.apps import AppConfig


class BuildsConfig(AppConfig):
    name = "control.builds"
    label = "builds"
