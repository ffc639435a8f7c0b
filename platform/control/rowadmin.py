"""The base of every admin page: look, don't touch.

Rows change through services only, which keep their transitions and invariants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Model]
else:
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Lists and shows rows."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
