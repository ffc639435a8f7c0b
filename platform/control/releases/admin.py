from __future__ import annotations

from django.contrib import admin

from control.releases.models import Release
from control.rowadmin import ReadOnlyAdmin


@admin.register(Release)
class ReleaseAdmin(ReadOnlyAdmin):
    list_display = ("environment", "number", "kind", "commit", "created_at")
    exclude = ("variables_ciphertext",)
