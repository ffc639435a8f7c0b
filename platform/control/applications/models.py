"""Apps, their environments and variables.

An app is never removed from the database, because sessions and charges point at it: it gets `deleted_at`, and its
name is free again.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models

from control import clock
from control.accounts.models import User
from control.applications.names import SLUG_MAX, SLUG_PATTERN
from control.applications.sizes import SizeName
from hosts.wire.spec import Egress

IDLE_PERIOD_DEFAULT_S = 60
SUSPEND_AFTER_DEFAULT_S = 300


class App(models.Model):
    """What a user creates: a git remote, settings, environments. Belongs to its owner."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="apps")
    slug = models.CharField(max_length=SLUG_MAX)
    size = models.CharField(max_length=20, default=SizeName.SMALL.value)
    idle_period_s = models.PositiveIntegerField(default=IDLE_PERIOD_DEFAULT_S)
    suspend_after_s = models.PositiveIntegerField(default=SUSPEND_AFTER_DEFAULT_S)
    egress = models.CharField(max_length=20, default=Egress.NONE.value, help_text="What its machines may reach")
    egress_allow = models.JSONField(default=list, blank=True, help_text="Names, for egress allowlist: normal form")
    robots_wake = models.BooleanField(default=False, help_text="Whether monitors and crawlers wake it")
    no_wake_methods = models.JSONField(default=list, blank=True, help_text="Methods that do not wake it")
    no_wake_paths = models.JSONField(default=list, blank=True, help_text="Paths that do not wake it")
    waiting_page = models.BooleanField(
        default=False, db_default=False, help_text="Whether browsers see a page while it wakes"
    )
    created_at = models.DateTimeField(default=clock.now, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["slug"], condition=models.Q(deleted_at=None), name="app_slug_of_living_apps"
            ),
            models.CheckConstraint(condition=models.Q(slug__regex=rf"^{SLUG_PATTERN}$"), name="app_slug_rule"),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def git_url(self) -> str:
        """Where its owner pushes."""
        return f"{settings.PUBLIC_URL}/{self.slug}.git"


class Environment(models.Model):
    """One running copy of an app. There is one so far: `production`, from the branch `main`."""

    app = models.ForeignKey(App, on_delete=models.PROTECT, related_name="environments")
    name = models.CharField(max_length=40, default="production")
    branch = models.CharField(max_length=100, default="main")
    label = models.CharField(max_length=63, help_text="The first label of its hostname")
    created_at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["app", "name"], name="environment_name_within_app"),
        ]

    def __str__(self) -> str:
        return f"{self.app.slug}/{self.name}"

    @property
    def hostname(self) -> str:
        """Where it is served."""
        return f"{self.label}.{settings.PREVIEW_DOMAIN}"

    @property
    def url(self) -> str:
        """Its preview URL."""
        usual = {"http": 80, "https": 443}[settings.PREVIEW_SCHEME]
        port = "" if usual == settings.PREVIEW_PORT else f":{settings.PREVIEW_PORT}"
        return f"{settings.PREVIEW_SCHEME}://{self.hostname}{port}/"


class Variable(models.Model):
    """An environment variable of the app's process; the value is encrypted (`vault.py`) and never shown again."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="variables")
    name = models.CharField(max_length=100)
    ciphertext = models.TextField()
    updated_at = models.DateTimeField(default=clock.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["environment", "name"], name="variable_name_within_environment"),
        ]

    def __str__(self) -> str:
        return self.name
