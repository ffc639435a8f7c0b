from __future__ import annotations

from django.contrib import admin

from control.rowadmin import ReadOnlyAdmin
from control.sources.models import Push


@admin.register(Push)
class PushAdmin(ReadOnlyAdmin):
    list_display = ("commit", "environment", "user", "subject", "received_at")
