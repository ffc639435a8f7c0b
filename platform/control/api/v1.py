"""The public API, version 1. JSON, `Authorization: Bearer <token>`; described at /api/v1/openapi.json.

A caller sees only their own apps: a foreign app is answered exactly like one that does not exist.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import NinjaAPI, Query, Status
from ninja.security import HttpBearer
from pydantic import AfterValidator

from control.accounts.models import User
from control.accounts.queries import user_of_token
from control.api import errors
from control.api.schemas import (
    AppChange,
    AppOut,
    DeployOut,
    ErrorOut,
    LogOut,
    NewApp,
    OutboundOut,
    SessionOut,
    SleepOrder,
    WakeOut,
)
from control.applications import queries as applications
from control.applications import services as app_services
from control.applications.models import App
from control.billing import queries as billing
from control.deploys import queries as deploys
from control.deploys import services as deploy_services
from control.deploys.models import Deploy
from control.errors import Kind, UserError
from control.metering import wakes
from control.routes import queries as routes
from control.routes import services as route_services

LIST_MAX = 1000


class AuthedRequest(HttpRequest):
    """A request that carries a valid token."""

    auth: User


class Bearer(HttpBearer):
    """`Authorization: Bearer <token>`."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        return user_of_token(token)


api = NinjaAPI(
    title="Burrow",
    version="1",
    urls_namespace="api-v1",
    auth=Bearer(),
    docs_url=None,
    openapi_url="/openapi.json",
)
errors.register(api)
REFUSALS: dict[Any, Any] = {401: ErrorOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut, 503: ErrorOut}
Limit = Annotated[int, Query(ge=1, le=LIST_MAX)]


def _in_utc(moment: datetime) -> datetime:
    """Postgres takes fewer offsets than Python; one without any is UTC."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("out of range") from None


Moment = Annotated[datetime, AfterValidator(_in_utc)]


@api.get("/apps", response={200: list[AppOut], **REFUSALS}, operation_id="list_apps")
def list_apps(request: AuthedRequest) -> list[AppOut]:
    """Your apps, newest first."""
    return [AppOut.of(v) for v in routes.app_views(applications.apps_of(request.auth))]


@api.post("/apps", response={201: AppOut, **REFUSALS}, operation_id="create_app")
def create_app(request: AuthedRequest, body: NewApp) -> Status[AppOut]:
    """Create an app; push to its `git_url` next."""
    app = app_services.create_app(owner=request.auth, name=body.name)
    return Status(201, AppOut.of(routes.app_view(app)))


@api.get("/apps/{name}", response={200: AppOut, **REFUSALS}, operation_id="get_app")
def get_app(request: AuthedRequest, name: str) -> AppOut:
    """One app. `state` is its live machine's, or `empty` before the first release."""
    return AppOut.of(routes.app_view(_app(request, name)))


@api.patch("/apps/{name}", response={200: AppOut, **REFUSALS}, operation_id="change_app")
def change_app(request: AuthedRequest, name: str, body: AppChange) -> AppOut:
    """Change settings. `env` sets variables (null removes one) and makes a new release where something is live. With
    egress "allowlist", `egress_allow` lists what the app may reach: `name` or `*.name`, with `:port,port` where that is
    not 443 and 80. It replaces the list and counts at once. Monitors and crawlers (unless `robots_wake`), the methods
    of `no_wake_methods` and the paths of `no_wake_paths` (`/cron/*` is all below it) leave the app asleep, and do not
    keep it awake. With `waiting_page` browsers get a page while it wakes, which goes on by itself; all else is held.
    """
    app = _app(request, name)
    app = deploy_services.apply_policy(
        app=app,
        idle_period_s=body.idle_period_s,
        suspend_after_s=body.suspend_after_s,
        egress=body.egress,
        egress_allow=body.egress_allow,
    )
    route_services.set_wake_policy(
        app=app,
        robots_wake=body.robots_wake,
        no_wake_methods=body.no_wake_methods,
        no_wake_paths=body.no_wake_paths,
        waiting_page=body.waiting_page,
    )
    if body.env is not None:
        deploy_services.set_variables(app=app, values=body.env)
    return AppOut.of(routes.app_view(app))


@api.delete("/apps/{name}", response={204: None, **REFUSALS}, operation_id="delete_app")
def delete_app(request: AuthedRequest, name: str) -> Status[None]:
    """Delete an app; its name is free at once, its machines go in a moment."""
    deploy_services.delete_app(app=_app(request, name))
    return Status(204, None)


@api.post("/apps/{name}/sleep", response={200: AppOut, **REFUSALS}, operation_id="sleep_app")
def sleep_app(request: AuthedRequest, name: str, body: SleepOrder | None = None) -> AppOut:
    """Put the app to sleep, paused unless `to` says suspended. Answers when it is."""
    app = _app(request, name)
    route_services.sleep_app(app=app, to=(body or SleepOrder()).to)
    return AppOut.of(routes.app_view(app))


@api.post("/apps/{name}/wake", response={200: AppOut, **REFUSALS}, operation_id="wake_app")
def wake_app(request: AuthedRequest, name: str) -> AppOut:
    """Wake the app. Answers when it runs."""
    app = _app(request, name)
    route_services.wake_app(app=app)
    return AppOut.of(routes.app_view(app))


@api.get("/apps/{name}/sessions", response={200: list[SessionOut], **REFUSALS}, operation_id="list_sessions")
def list_sessions(
    request: AuthedRequest, name: str, limit: Limit = 100, before: Moment | None = None
) -> list[SessionOut]:
    """When the app ran, why, and what it cost; newest first. An open session has no `ended_at` and counts up to now."""
    return [SessionOut.of(s) for s in billing.sessions_of(_app(request, name), limit=limit, before=before)]


@api.get("/apps/{name}/wakes", response={200: list[WakeOut], **REFUSALS}, operation_id="list_wakes")
def list_wakes(request: AuthedRequest, name: str, limit: Limit = 50, before: Moment | None = None) -> list[WakeOut]:
    """What woke the app and how that went; newest first, at most the last 500 and 14 days. `request` is the id in the
    edge's access log (with `kept`, of the request that had opened the stream); milliseconds count from `asked_at`, but
    a step's are its own, and the guest's steps are part of `contract`. `code` says why it failed.
    """
    return [WakeOut.of(w) for w in wakes.wakes_of(_app(request, name), limit=limit, before=before)]


@api.get("/apps/{name}/egress-log", response={200: list[OutboundOut], **REFUSALS}, operation_id="list_outbound_names")
def list_outbound_names(request: AuthedRequest, name: str) -> list[OutboundOut]:
    """The names the app asked for under egress "allowlist", at most 256, newest first, each with whether it was allowed
    at the last question. The host remembers them until the machine is replaced or its agent restarts.
    """
    return [OutboundOut.of(one) for one in route_services.outbound(app=_app(request, name))]


@api.get("/apps/{name}/deploys", response={200: list[DeployOut], **REFUSALS}, operation_id="list_deploys")
def list_deploys(request: AuthedRequest, name: str, limit: Limit = 50) -> list[DeployOut]:
    """The app's deploys, newest first, each with its phase, its outcome (null while it runs) and the time of each
    phase.
    """
    return [DeployOut.of(d) for d in deploys.deploys_of(_app(request, name), limit=limit)]


@api.get("/apps/{name}/deploys/{number}", response={200: DeployOut, **REFUSALS}, operation_id="get_deploy")
def get_deploy(request: AuthedRequest, name: str, number: int) -> DeployOut:
    """One deploy."""
    return DeployOut.of(_deploy(request, name, number))


@api.get("/apps/{name}/deploys/{number}/log", response={200: LogOut, **REFUSALS}, operation_id="get_deploy_log")
def get_deploy_log(request: AuthedRequest, name: str, number: int, after: Annotated[int, Query(ge=0)] = 0) -> LogOut:
    """The deploy's log from line `after`; ask again with `next` until `done`."""
    page = deploys.log_page(_deploy(request, name, number).deploy, after=after)
    return LogOut(lines=page.lines, next=page.next, done=page.done)


def _app(request: AuthedRequest, name: str) -> App:
    try:
        return applications.app_of(request.auth, name)
    except App.DoesNotExist:
        raise UserError("app:unknown", "You have no app of that name.", Kind.NOT_FOUND) from None


def _deploy(request: AuthedRequest, name: str, number: int) -> deploys.DeployView:
    try:
        return deploys.deploy_of(_app(request, name), number)
    except Deploy.DoesNotExist:
        raise UserError("deploy:unknown", "There is no such deploy.", Kind.NOT_FOUND) from None
