from __future__ import annotations

from django.apps import AppConfig


class SourcesConfig(AppConfig):
    name = "control.sources"
    label = "sources"
