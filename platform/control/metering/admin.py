from __future__ import annotations

from django.contrib import admin

from control.metering.models import HostEvent, Session, Wake
from control.rowadmin import ReadOnlyAdmin


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = ("id", "environment", "machine", "started_at", "ended_at", "cause", "end_cause")


@admin.register(Wake)
class WakeAdmin(ReadOnlyAdmin):
    list_display = ("asked_at", "environment", "cause", "start", "ready_ms", "first_byte_ms", "code")
    list_filter = ("start", "code")


@admin.register(HostEvent)
class HostEventAdmin(ReadOnlyAdmin):
    list_display = ("seq", "host", "kind", "machine_id", "at", "problem")
    list_filter = ("kind", "problem")
