"""Deploys: one attempt to make something live, from push to switch, with its log and steps.

Whoever works on a deploy holds its lease; every change of the row asks for the lease it was taken with, so a worker
that lost it (killed, stalled, overtaken) changes nothing.
"""

from __future__ import annotations

import uuid
from enum import StrEnum

from django.db import models

from control import clock
from control.applications.models import Environment
from control.builds.models import Build
from control.deploys.states import Phase
from control.machines.models import Machine
from control.releases.models import Release
from control.sources.models import Push


class Reason(StrEnum):
    """Why a deploy was made."""

    PUSH = "push"
    CONFIG = "config"  # variables or size changed: the same image, another release


class Deploy(models.Model):
    """One deploy. `phase` and `outcome` are explained in `states.py`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="deploys")
    number = models.PositiveIntegerField(help_text="Counts up within the environment; the highest wins")
    reason = models.CharField(max_length=20, default=Reason.PUSH.value)
    push = models.OneToOneField(Push, on_delete=models.PROTECT, null=True, blank=True, related_name="deploy")
    build = models.OneToOneField(Build, on_delete=models.PROTECT, null=True, blank=True, related_name="deploy")
    release = models.OneToOneField(Release, on_delete=models.PROTECT, null=True, blank=True, related_name="deploy")
    machine = models.OneToOneField(Machine, on_delete=models.PROTECT, null=True, blank=True, related_name="deploy")
    phase = models.CharField(max_length=20, default=Phase.QUEUED.value)
    phase_since = models.DateTimeField(default=clock.now)
    outcome = models.CharField(max_length=20, blank=True)
    code = models.CharField(max_length=80, blank=True)
    message = models.TextField(blank=True)
    log_lines = models.PositiveIntegerField(default=0)
    lease = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["environment", "number"], name="deploy_number_within_environment"),
            models.UniqueConstraint(
                fields=["environment"], condition=models.Q(outcome=""), name="deploy_one_unfinished_per_environment"
            ),
        ]

    def __str__(self) -> str:
        return f"deploy {self.number} ({self.outcome or self.phase})"


class DeployStep(models.Model):
    """One step a deploy entered: a change of its phase, or of the builder's (`build.installing`). Append-only."""

    deploy = models.ForeignKey(Deploy, on_delete=models.CASCADE, related_name="steps")
    name = models.CharField(max_length=40)
    detail = models.TextField(blank=True)
    at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["deploy", "name"], name="deploy_step_once")]

    def __str__(self) -> str:
        return self.name


class LogChunk(models.Model):
    """Consecutive lines of a deploy's log, sanitised.

    `first` is the number of the first one; chunks follow without gap.
    """

    deploy = models.ForeignKey(Deploy, on_delete=models.CASCADE, related_name="chunks")
    first = models.PositiveIntegerField()
    lines = models.JSONField()
    at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        ordering = ["first"]
        constraints = [models.UniqueConstraint(fields=["deploy", "first"], name="log_chunk_once")]

    def __str__(self) -> str:
        return f"lines from {self.first}"
