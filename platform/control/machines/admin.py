from __future__ import annotations

from django.contrib import admin

from control.machines.models import Host, Machine
from control.rowadmin import ReadOnlyAdmin


@admin.register(Host)
class HostAdmin(ReadOnlyAdmin):
    list_display = ("name", "accelerator", "seen_at")
    exclude = ("token_digest",)


@admin.register(Machine)
class MachineAdmin(ReadOnlyAdmin):
    list_display = ("id", "environment", "release", "host", "lifecycle", "state", "state_since")
    list_filter = ("lifecycle", "state")
