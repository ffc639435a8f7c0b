"""Hosts and machines. A machine's row outlives the machine, because sessions and charges point at it."""

from __future__ import annotations

import uuid

from django.db import models

from control import clock
from control.applications.models import Environment
from control.machines.states import DECLARED, Lifecycle
from control.releases.models import Release


class Host(models.Model):
    """A server that runs machines. Its agent reports with a token of which only the digest is kept."""

    name = models.CharField(max_length=64, unique=True)
    token_digest = models.CharField(max_length=64)
    accelerator = models.CharField(max_length=10, blank=True)
    created_at = models.DateTimeField(default=clock.now, editable=False)
    seen_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Machine(models.Model):
    """A microVM of one release on one host.

    `state` is what its host last said; `version` counts the row's changes of state.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="machines")
    release = models.ForeignKey(Release, on_delete=models.PROTECT, related_name="machines")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="machines")
    size = models.CharField(max_length=20)
    lifecycle = models.CharField(max_length=20, default=Lifecycle.WANTED.value)
    state = models.CharField(max_length=20, default=DECLARED)
    state_since = models.DateTimeField(default=clock.now)
    code = models.CharField(max_length=80, blank=True, help_text="Why it failed")
    detail = models.TextField(blank=True)
    version = models.PositiveIntegerField(default=0)
    journal_id = models.CharField(max_length=64, blank=True, help_text="The host journal of the last event taken over")
    journal_seq = models.PositiveBigIntegerField(default=0)
    policy_sent = models.TextField(blank=True, help_text="The policy its host has, as JSON")
    report = models.JSONField(null=True, blank=True, help_text="The host's last full report")
    drain_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=clock.now, editable=False)
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["lifecycle", "host"], name="machine_lifecycle_host"),
            models.Index(fields=["environment", "lifecycle"], name="machine_environment"),
        ]

    def __str__(self) -> str:
        return self.id.hex


class MachineTransition(models.Model):
    """One change of what a machine does or of what control wants with it."""

    machine = models.ForeignKey(Machine, on_delete=models.CASCADE, related_name="transitions")
    old = models.CharField(max_length=20)
    new = models.CharField(max_length=20)
    source = models.CharField(max_length=20, help_text="event, report or control")
    code = models.CharField(max_length=80, blank=True)
    detail = models.TextField(blank=True)
    at = models.DateTimeField(help_text="When it happened, by the host's clock where the host said so")
    stored_at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.old} -> {self.new}"
