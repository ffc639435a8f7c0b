from __future__ import annotations

from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "control.web"
    label = "web"
