from __future__ import annotations

from django.apps import AppConfig


class MachinesConfig(AppConfig):
    name = "control.machines"
    label = "machines"
