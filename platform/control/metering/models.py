"""What hosts reported: every event once, and the sessions that follow from them.

A session of a machine never overlaps another of the same machine; Postgres holds that (exclusion constraint), not our
code.
"""

from __future__ import annotations

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateTimeRangeField, RangeOperators
from django.db import models

from control import clock
from control.applications.models import Environment
from control.machines.models import Host, Machine


class HostEvent(models.Model):
    """One event of a host's journal, stored for good. `problem` says why it changed nothing, where it did not."""

    event_id = models.CharField(max_length=64, unique=True)
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="events")
    journal_id = models.CharField(max_length=64)
    seq = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=40)
    machine_id = models.CharField(max_length=64)
    at = models.DateTimeField()
    body = models.JSONField()
    taken = models.BooleanField(default=False, help_text="It has had its effect, or was found to have none")
    problem = models.CharField(max_length=80, blank=True)
    received_at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        indexes = [models.Index(fields=["machine_id", "seq"], name="event_machine_seq")]

    def __str__(self) -> str:
        return f"{self.kind} {self.seq}"


class Session(models.Model):
    """One uninterrupted interval in which a machine ran.

    `ended_at` is set only by the host's own report (or by the reconciler for a host that will never report): only
    then it is billed. `during` may end earlier than known for an unfinished session that another one followed, so
    that rows never overlap.
    """

    id = models.CharField(primary_key=True, max_length=64)
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="sessions")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="sessions")
    size = models.CharField(max_length=20)
    during = DateTimeRangeField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    cause = models.CharField(max_length=20)
    end_cause = models.CharField(max_length=20, blank=True)

    class Meta:
        constraints = [
            ExclusionConstraint(
                name="session_no_overlap_per_machine",
                expressions=[("machine", RangeOperators.EQUAL), ("during", RangeOperators.OVERLAPS)],
            ),
        ]
        indexes = [
            models.Index(fields=["environment", "-started_at"], name="session_environment_started"),
            models.Index(fields=["machine"], condition=models.Q(ended_at=None), name="session_open"),
        ]

    def __str__(self) -> str:
        return self.id
