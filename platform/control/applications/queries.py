"""Reads on apps.

`app_of` is the one way from a name in a request to an app, so that ownership is asked in one place.
"""

from __future__ import annotations

from django.db.models import QuerySet

from control.accounts.models import User
from control.applications import vault
from control.applications.models import App, Environment
from control.applications.names import SLUG

PRODUCTION = "production"


def apps_of(user: User) -> QuerySet[App]:
    """The user's apps, newest first."""
    return App.objects.filter(owner=user, deleted_at=None).order_by("-created_at")


def app_of(user: User, slug: str) -> App:
    """The user's app of that name; a foreign one is as unknown as one that does not exist (App.DoesNotExist)."""
    if not SLUG.match(slug):  # no app has such a name, and some (NUL in it) cannot even be looked for
        raise App.DoesNotExist
    return App.objects.get(owner=user, slug=slug, deleted_at=None)


def production(app: App) -> Environment:
    """The app's one environment."""
    return Environment.objects.select_related("app").get(app=app, name=PRODUCTION)


def variable_names(environment: Environment) -> list[str]:
    """Which variables are set; their values are never shown again."""
    return list(environment.variables.order_by("name").values_list("name", flat=True))


def variables(environment: Environment) -> dict[str, str]:
    """Names and values, for a release."""
    return {v.name: vault.unseal(v.ciphertext) for v in environment.variables.order_by("name")}
