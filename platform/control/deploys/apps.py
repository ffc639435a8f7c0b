from __future__ import annotations

from django.apps import AppConfig


class DeploysConfig(AppConfig):
    name = "control.deploys"
    label = "deploys"
