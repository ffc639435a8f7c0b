from __future__ import annotations

from django.apps import AppConfig


class MeteringConfig(AppConfig):
    name = "control.metering"
    label = "metering"
