"""Which machine is live for which hostname, and which edge knows it.

The route is the one pointer to the live machine and release.
"""

from __future__ import annotations

from django.db import models

from control import clock
from control.applications.models import Environment
from control.machines.models import Machine


class Route(models.Model):
    """Hostname -> machine. Exists from the first deploy that went live until the app is deleted."""

    environment = models.OneToOneField(Environment, on_delete=models.PROTECT, related_name="route")
    hostname = models.CharField(max_length=253, unique=True)
    machine = models.OneToOneField(Machine, on_delete=models.PROTECT, related_name="route")
    may_wake = models.BooleanField(default=True)
    updated_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return self.hostname


class RouteTable(models.Model):
    """The one row that numbers route tables.

    Numbers are Unix milliseconds or more, so they go on growing over a database made anew.
    """

    generation = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.generation)


class Edge(models.Model):
    """What one edge worker has, by its control socket."""

    socket = models.CharField(max_length=200, unique=True)
    generation = models.BigIntegerField(default=0)
    seen_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.socket
