"""Reads on accounts."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q, QuerySet

from control import clock
from control.accounts import tokens
from control.accounts.models import ApiToken, User

LAST_USED_GRAIN = timedelta(minutes=1)  # finer would be a write per request


def tokens_of(user: User) -> QuerySet[ApiToken]:
    """The user's valid tokens, newest first."""
    return ApiToken.objects.filter(user=user, revoked_at=None).order_by("-id")


def user_of_token(secret: str) -> User | None:
    """Who carries this token, or None. The one place that decides whether a token is good."""
    if not secret.startswith(tokens.MARK) or len(secret) > tokens.MAX_CHARS:
        return None
    token = (
        ApiToken.objects.select_related("user")
        .filter(digest=tokens.digest(secret), revoked_at=None, user__is_active=True)
        .first()
    )
    if token is None:
        return None
    now = clock.now()
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_GRAIN)
    ApiToken.objects.filter(stale, id=token.id).update(last_used_at=now)
    return token.user
