"""Works on deploys as the worker and the sweep do, or step by step, or dying where a test wants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from control.applications import queries as applications
from control.applications.models import App
from control.deploys import lease, pipeline, queries
from control.deploys.models import Deploy
from control.deploys.states import Phase
from control.hostapi import HostApi
from control.routes import queries as routes


def finish(deploy: Deploy, tries: int = 50) -> Deploy:
    """Work on it until it ends, as the worker and the sweep do together."""
    for _ in range(tries):
        pipeline.work(deploy.id)
        deploy.refresh_from_db()
        if deploy.outcome:
            return deploy
    raise AssertionError(f"{deploy} did not end")


def log_of(deploy: Deploy) -> str:
    return "\n".join(queries.log_page(deploy, after=0).lines)


def live_release(app: App) -> int | None:
    machine = routes.live_machine(applications.production(app))
    return machine.release.number if machine else None


class WorkerKilledError(BaseException):
    """Stands for kill -9: nothing in the code under test catches it."""


@contextlib.contextmanager
def dying_once(verb: str, when: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The worker dies the first time it makes this call: before the host hears of it, or after it did."""
    real = HostApi._request
    died: list[str] = []

    def request(self: HostApi, method: str, path: str, body: object, timeout_s: float) -> bytes:
        parts = path.split("?")[0].strip("/").split("/")[1:]
        hit = f"{method} {'/'.join([parts[0], *parts[2:]])}" == verb and not died
        if hit and when == "before":
            died.append(verb)
            raise WorkerKilledError
        answer = real(self, method, path, body, timeout_s)  # type: ignore[arg-type]
        if hit:
            died.append(verb)
            raise WorkerKilledError
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(HostApi, "_request", request)
        # kill -9 leaves the lease held
        patch.setattr(lease.Lease, "release", lambda self: None)
        yield
    assert died == [verb]


def step(deploy: Deploy) -> None:
    """One turn of one phase."""
    held = lease.take(deploy.id)
    assert held is not None
    loaded = pipeline._load(deploy.id)
    try:
        pipeline.PHASES[Phase(loaded.phase)](loaded, held)
    finally:
        held.release()
    deploy.refresh_from_db()


def work_once(deploy: Deploy, phase: Phase) -> None:
    """Turns until the deploy is in `phase`, then one more."""
    work_until(deploy, phase)
    step(deploy)


def work_until(deploy: Deploy, phase: Phase) -> None:
    for _ in range(50):
        if deploy.phase == phase:
            return
        step(deploy)
    raise AssertionError(f"{deploy} did not reach {phase}")
