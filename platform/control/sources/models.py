"""Received commits. A Push exists once its source is complete in the spool; a push that was refused leaves no row."""

from __future__ import annotations

import uuid

from django.db import models

from control import clock
from control.accounts.models import User
from control.applications.models import Environment


class Push(models.Model):
    """One commit received for one environment. Its id names its tar in the spool."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="pushes")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    ref = models.CharField(max_length=250)
    commit = models.CharField(max_length=64)
    old_commit = models.CharField(max_length=64, help_text="What the branch pointed at before; empty for a new branch")
    subject = models.CharField(max_length=200, blank=True)
    archive_bytes = models.PositiveBigIntegerField()
    received_at = models.DateTimeField(default=clock.now, editable=False)

    def __str__(self) -> str:
        return self.commit[:10]
