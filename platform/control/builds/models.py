"""Builds: the work done on a push by a builder machine on a host, and what came of it."""

from __future__ import annotations

import uuid

from django.db import models

from control import clock
from control.applications.models import Environment
from control.builds.states import BuildState
from control.sources.models import Push


class Build(models.Model):
    """One build. Its id is the host's build id, so telling the host twice changes nothing."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="builds")
    push = models.OneToOneField(Push, on_delete=models.PROTECT, related_name="build")
    state = models.CharField(max_length=20, default=BuildState.QUEUED.value)
    phase = models.CharField(
        max_length=20, default="waiting", help_text="What the builder is doing (hosts.wire BuildPhase)"
    )
    host = models.CharField(max_length=64, blank=True, help_text="The id of the host that has it")
    sends = models.PositiveSmallIntegerField(default=0, help_text="How often it was sent to a host")
    next_line = models.PositiveIntegerField(default=0, help_text="The first line of the host's log not yet stored")
    image_digest = models.CharField(max_length=64, blank=True)
    image_bytes = models.PositiveBigIntegerField(default=0)
    kind = models.CharField(max_length=20, blank=True)
    command = models.TextField(blank=True)
    cwd = models.CharField(max_length=500, blank=True)
    code = models.CharField(max_length=80, blank=True)
    message = models.TextField(blank=True)
    created_at = models.DateTimeField(default=clock.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"build {self.id.hex[:8]} ({self.state})"


class BuildTransition(models.Model):
    """One change of a build's state."""

    build = models.ForeignKey(Build, on_delete=models.CASCADE, related_name="transitions")
    old = models.CharField(max_length=20)
    new = models.CharField(max_length=20)
    detail = models.TextField(blank=True)
    at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.old} -> {self.new}"
