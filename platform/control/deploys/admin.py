from __future__ import annotations

from django.contrib import admin

from control.deploys.models import Deploy
from control.rowadmin import ReadOnlyAdmin


@admin.register(Deploy)
class DeployAdmin(ReadOnlyAdmin):
    list_display = ("environment", "number", "reason", "phase", "outcome", "code", "created_at", "finished_at")
    list_filter = ("phase", "outcome")
