from __future__ import annotations

from django.contrib import admin

from control.builds.models import Build
from control.rowadmin import ReadOnlyAdmin


@admin.register(Build)
class BuildAdmin(ReadOnlyAdmin):
    list_display = ("id", "environment", "state", "phase", "kind", "code", "created_at", "finished_at")
    list_filter = ("state",)
