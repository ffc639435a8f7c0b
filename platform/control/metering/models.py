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


class Wake(models.Model):
    """One wake, as its host traced it (`hosts/wire/wakes.py`). For people to read: nothing follows from it."""

    event_id = models.CharField(primary_key=True, max_length=64)
    machine = models.ForeignKey(Machine, on_delete=models.CASCADE, related_name="wakes")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="wakes")
    asked_at = models.DateTimeField(help_text="When the request that caused it reached the host")
    cause = models.CharField(max_length=20)
    request = models.CharField(max_length=64, blank=True, help_text="Its id in the edge's access log")
    kept = models.BooleanField(default=False, help_text="It came on a stream that this request had opened before")
    waited = models.PositiveIntegerField(default=0, help_text="Requests that waited")
    start = models.CharField(max_length=20, blank=True)
    reason = models.TextField(blank=True, help_text="Why its memory was not gone on with")
    queue_ms = models.FloatField()
    ready_ms = models.FloatField()
    first_byte_ms = models.FloatField(null=True, blank=True)
    code = models.CharField(max_length=80, blank=True, help_text="Why it failed")
    phase = models.CharField(max_length=40, blank=True)
    steps = models.JSONField(default=list)
    received_at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        indexes = [
            models.Index(fields=["environment", "-asked_at"], name="wake_environment_asked"),
            models.Index(fields=["received_at"], name="wake_received"),
        ]

    def __str__(self) -> str:
        return self.event_id


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
