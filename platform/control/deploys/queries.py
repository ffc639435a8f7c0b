"""Reads on deploys, their steps and logs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from control import clock
from control.applications.models import App
from control.deploys.models import Deploy, DeployStep, LogChunk
from control.deploys.states import Outcome, Phase

LOG_PAGE_LINES = 1000
TERMINAL = frozenset({Phase.LIVE.value, *(o.value for o in Outcome)})


@dataclass(frozen=True, slots=True)
class StepView:
    """One step and how long it took (so far, for the present one)."""

    phase: str
    seconds: float


@dataclass(frozen=True, slots=True)
class DeployView:
    """A deploy as its owner sees it."""

    deploy: Deploy
    number: int
    commit: str
    subject: str
    phase: str
    outcome: str  # "" while it runs
    code: str
    message: str
    release: int | None
    started_at: datetime
    ended_at: datetime | None
    steps: list[StepView]


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines of a deploy's log; ask again with `next`. `done`: nothing will follow."""

    lines: list[str]
    next: int
    done: bool


def deploys_of(app: App, *, limit: int = 50) -> list[DeployView]:
    """The app's deploys, newest first."""
    deploys = (
        Deploy.objects.select_related("push", "release", "environment")
        .prefetch_related("steps")
        .filter(environment__app=app)
        .order_by("-number")[:limit]
    )
    return [_view(d) for d in deploys]


def deploy_of(app: App, number: int) -> DeployView:
    """One deploy of the app, or Deploy.DoesNotExist."""
    return _view(Deploy.objects.select_related("push", "release").get(environment__app=app, number=number))


def unfinished(apps: Iterable[App]) -> set[uuid.UUID]:
    """The ids of those apps of which a deploy is under way."""
    return set(
        Deploy.objects.filter(environment__app__in=list(apps), outcome="").values_list("environment__app", flat=True)
    )


def log_page(deploy: Deploy, *, after: int, limit: int = LOG_PAGE_LINES) -> LogPage:
    """The log from line `after`."""
    # The end is read before the lines: what is read as ended then cannot get lines that this page misses.
    ended = Deploy.objects.values_list("outcome", "log_lines").get(id=deploy.id)
    lines: list[str] = []
    chunks = LogChunk.objects.filter(deploy=deploy, first__lt=after + limit).order_by("-first")
    picked: list[LogChunk] = []
    for chunk in chunks.iterator(chunk_size=50):
        picked.append(chunk)
        if chunk.first <= after:
            break
    for chunk in reversed(picked):
        lines += chunk.lines[max(0, after - chunk.first) :]
    lines = lines[:limit]
    following = after + len(lines)
    return LogPage(lines=lines, next=following, done=bool(ended[0]) and following >= ended[1])


def _view(deploy: Deploy) -> DeployView:
    return DeployView(
        deploy=deploy,
        number=deploy.number,
        commit=deploy.push.commit if deploy.push else (deploy.release.commit if deploy.release else ""),
        subject=deploy.push.subject if deploy.push else "New configuration",
        phase=deploy.phase,
        outcome=deploy.outcome,
        code=deploy.code,
        message=deploy.message,
        release=deploy.release.number if deploy.release else None,
        started_at=deploy.created_at,
        ended_at=deploy.finished_at,
        steps=_steps(deploy, list(deploy.steps.all())),
    )


def _steps(deploy: Deploy, steps: list[DeployStep]) -> list[StepView]:
    ends = [s.at for s in steps[1:]] + [deploy.finished_at or clock.now()]
    return [
        StepView(step.name, round(max(0.0, (end - step.at).total_seconds()), 3))
        for step, end in zip(steps, ends, strict=True)
        if step.name not in TERMINAL
    ]
