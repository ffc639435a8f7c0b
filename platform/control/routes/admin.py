from __future__ import annotations

from django.contrib import admin

from control.routes.models import Edge, Route
from control.rowadmin import ReadOnlyAdmin


@admin.register(Route)
class RouteAdmin(ReadOnlyAdmin):
    list_display = ("hostname", "machine", "may_wake", "updated_at")


@admin.register(Edge)
class EdgeAdmin(ReadOnlyAdmin):
    list_display = ("socket", "generation", "seen_at")
