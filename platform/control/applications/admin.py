from __future__ import annotations

from django.contrib import admin

from control.applications.models import App, Environment
from control.rowadmin import ReadOnlyAdmin


@admin.register(App)
class AppAdmin(ReadOnlyAdmin):
    list_display = ("slug", "owner", "size", "created_at", "deleted_at")
    search_fields = ("slug", "owner__email")


@admin.register(Environment)
class EnvironmentAdmin(ReadOnlyAdmin):
    list_display = ("app", "name", "branch", "label")
