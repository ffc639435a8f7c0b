from __future__ import annotations

from django.contrib import admin

from control.billing.models import Entry
from control.rowadmin import ReadOnlyAdmin


@admin.register(Entry)
class EntryAdmin(ReadOnlyAdmin):
    list_display = ("app", "session", "milliseconds", "rate_micros_per_s", "amount_micros", "created_at")
