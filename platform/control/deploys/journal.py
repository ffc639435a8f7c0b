"""A deploy's log and steps: what the pusher's terminal, the dashboard and the API show of it, written as it happens.

Lines are numbered without gap within a deploy. They are sanitised before they are stored, so that every reader may
show them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db import transaction

from control.builds.lines import clean
from control.builds.models import Build
from control.deploys.models import Deploy, DeployStep, LogChunk

LOG_LINES_MAX = 20_000
CHUNK_LINES_MAX = 500
HEAD = "-----> "
BODY = "       "
FAULT = " !     "


def append(deploy_id: uuid.UUID, lines: Sequence[str], *, prefix: str = BODY) -> None:
    """Add lines to the log."""
    with transaction.atomic():
        _append(deploy_id, [prefix + clean(line) for line in lines])


def append_build(deploy_id: uuid.UUID, build: Build, lines: Sequence[str], following: int) -> bool:
    """Add the builder's lines and remember where to go on, both or neither.

    False if another worker added them already.
    """
    with transaction.atomic():
        moved = Build.objects.filter(id=build.id, state=build.state, next_line=build.next_line).update(
            next_line=following
        )
        if moved and lines:
            _append(deploy_id, [BODY + clean(line) for line in lines])
    return bool(moved)


def step(deploy_id: uuid.UUID, name: str, detail: str = "") -> None:
    """The deploy entered a step; the first time counts."""
    DeployStep.objects.bulk_create([DeployStep(deploy_id=deploy_id, name=name, detail=detail)], ignore_conflicts=True)


def _append(deploy_id: uuid.UUID, lines: list[str]) -> None:
    deploy = Deploy.objects.select_for_update(of=("self",)).only("id", "log_lines").get(id=deploy_id)
    room = LOG_LINES_MAX - deploy.log_lines
    if room <= 0:
        return
    if len(lines) >= room:
        lines = [*lines[: room - 1], FAULT + f"the log ends here: more than {LOG_LINES_MAX} lines"]
    first = deploy.log_lines
    LogChunk.objects.bulk_create(
        LogChunk(deploy_id=deploy_id, first=first + i, lines=lines[i : i + CHUNK_LINES_MAX])
        for i in range(0, len(lines), CHUNK_LINES_MAX)
    )
    Deploy.objects.filter(id=deploy_id).update(log_lines=first + len(lines))
