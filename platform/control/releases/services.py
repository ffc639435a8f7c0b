"""Verbs on releases."""

from __future__ import annotations

from django.db.models import Max

from control.applications import queries as applications
from control.applications import vault
from control.applications.models import Environment
from control.builds.models import Build
from control.releases.models import Release


def create(*, environment: Environment, build: Build) -> Release:
    """The next release: this build's image with the present variables.

    Part of the caller's transaction, which holds the environment's row, so that numbers have no gap and no twin.
    """
    highest: int | None = Release.objects.filter(environment=environment).aggregate(n=Max("number"))["n"]
    return Release.objects.create(
        environment=environment,
        number=(highest or 0) + 1,
        build=build,
        image_digest=build.image_digest,
        image_bytes=build.image_bytes,
        kind=build.kind,
        command=build.command,
        cwd=build.cwd,
        variables_ciphertext=vault.seal_map(applications.variables(environment)),
        commit=build.push.commit,
        subject=build.push.subject,
    )
