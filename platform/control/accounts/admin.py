from __future__ import annotations

from django.contrib import admin

from control.accounts.models import ApiToken, User
from control.rowadmin import ReadOnlyAdmin


@admin.register(User)
class UserAdmin(ReadOnlyAdmin):
    list_display = ("email", "is_active", "is_staff", "created_at")
    search_fields = ("email",)
    exclude = ("password", "groups", "user_permissions")


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    list_display = ("prefix", "name", "user", "created_at", "last_used_at", "revoked_at")
    exclude = ("digest",)
