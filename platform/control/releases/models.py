"""Releases: an image and the configuration it runs with, numbered per environment, immutable."""

from __future__ import annotations

from django.db import models

from control import clock
from control.applications.models import Environment
from control.builds.models import Build


class Release(models.Model):
    """Image + config. What a machine runs never changes under it: another configuration is another release."""

    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="releases")
    number = models.PositiveIntegerField()
    build = models.ForeignKey(Build, on_delete=models.PROTECT, related_name="releases")
    image_digest = models.CharField(max_length=64)
    image_bytes = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=20)
    command = models.TextField()
    cwd = models.CharField(max_length=500)
    variables_ciphertext = models.TextField(help_text="The variables of that moment as encrypted JSON")
    commit = models.CharField(max_length=64)
    subject = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(default=clock.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["environment", "number"], name="release_number_within_environment"),
        ]

    def __str__(self) -> str:
        return f"release {self.number}"
