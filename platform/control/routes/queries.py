"""Reads on routes: the live machine and release of an environment, and what of an app is shown everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from control.applications.models import App, Environment
from control.applications.queries import PRODUCTION
from control.machines.models import Machine
from control.machines.states import EMPTY
from control.releases.models import Release
from control.routes.models import Route


@dataclass(frozen=True, slots=True)
class AppView:
    """An app as its owner sees it."""

    app: App
    environment: Environment
    machine: Machine | None
    release: Release | None
    state: str  # the live machine's state, or "empty" before the first release
    url: str
    git_url: str


def live_machine(environment: Environment) -> Machine | None:
    """The machine that serves this environment."""
    route = (
        Route.objects.select_related("machine__environment__app", "machine__release", "machine__host")
        .filter(environment=environment)
        .first()
    )
    return route.machine if route else None


def app_view(app: App) -> AppView:
    """One app."""
    (view,) = app_views([app])
    return view


def app_views(apps: Iterable[App]) -> list[AppView]:
    """Several apps, in their order, with two queries."""
    apps = list(apps)
    environments = {
        e.app_id: e for e in Environment.objects.select_related("app").filter(app__in=apps, name=PRODUCTION)
    }
    routes = {
        r.environment_id: r
        for r in Route.objects.select_related("machine__release", "machine__host").filter(
            environment__in=environments.values()
        )
    }
    views = []
    for app in apps:
        environment = environments[app.id]
        route = routes.get(environment.id)
        machine = route.machine if route else None
        views.append(
            AppView(
                app=app,
                environment=environment,
                machine=machine,
                release=machine.release if machine else None,
                state=machine.state if machine else EMPTY,
                url=environment.url,
                git_url=app.git_url,
            )
        )
    return views
