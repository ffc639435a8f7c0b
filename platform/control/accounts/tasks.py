"""Accounts in the background."""

from __future__ import annotations

from importlib import import_module

from celery import shared_task
from django.conf import settings


@shared_task(name="accounts.clear_sign_ins")
def clear_sign_ins() -> None:
    """Forget expired sign-ins: Django itself removes one only when its owner signs out."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
