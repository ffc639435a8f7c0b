"""The internal API that the git hook talks to (`/internal/v1/push/...`). It needs the ticket of a push; every call
may be repeated.

`check` judges what is pushed, `received` registers it once its source is in the spool, `follow` gives the log as it
grows and, at the end, the push's fate.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.accounts.models import User
from control.applications import queries as applications
from control.applications.models import App, Environment
from control.builds.lines import clean
from control.deploys import queries, services
from control.deploys.models import Deploy
from control.deploys.states import Outcome
from control.errors import Kind, UserError
from control.routes import queries as routes
from control.sources import spool, tickets
from control.sources.policy import Update, is_zero, judge
from hosts.wire import codec

FOLLOW_WAIT_S = 10.0
FOLLOW_STEP_S = 0.25
SUBJECT_CHARS = 200

STATUS = {
    Kind.DENIED: HTTPStatus.UNAUTHORIZED,
    Kind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Kind.CONFLICT: HTTPStatus.CONFLICT,
    Kind.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Kind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Check:
    """What the hook was given by git."""

    updates: tuple[Update, ...]
    options: int


@dataclass(frozen=True, slots=True)
class ReceivedPush:
    """The same, and what it found out about the commit."""

    updates: tuple[Update, ...]
    options: int
    subject: str
    archive_bytes: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Which deploy, from which line."""

    deploy: str
    after: int


@dataclass(frozen=True, slots=True)
class Pusher:
    """Whom a valid ticket speaks for."""

    ticket: tickets.Ticket
    user: User
    environment: Environment


View = Callable[[HttpRequest, Pusher], JsonResponse]


def with_ticket(view: View) -> Callable[[HttpRequest], JsonResponse]:
    """Only with a valid ticket; refusals and malformed messages become JSON with a code."""

    @csrf_exempt
    @require_POST
    @wraps(view)
    def checked(request: HttpRequest) -> JsonResponse:
        try:
            return view(request, _pusher(request))
        except UserError as e:
            return JsonResponse({"code": e.code, "message": e.message}, status=STATUS[e.kind])
        except codec.WireError as e:
            return JsonResponse({"code": "wire:bad_message", "message": str(e)}, status=HTTPStatus.BAD_REQUEST)

    return checked


@with_ticket
def check(request: HttpRequest, pusher: Pusher) -> JsonResponse:
    """Whether such a push is accepted at all; changes nothing."""
    message = codec.decode(Check, request.body)
    _judge(pusher.environment, message.updates, message.options)
    return JsonResponse({})


@with_ticket
def received(request: HttpRequest, pusher: Pusher) -> JsonResponse:
    """Register the push; its source is in the spool."""
    message = codec.decode(ReceivedPush, request.body)
    update = _judge(pusher.environment, message.updates, message.options)
    push_id = pusher.ticket.push_id
    try:
        size = spool.source_path(push_id).stat().st_size
    except FileNotFoundError:
        size = -1
    known = Deploy.objects.filter(push_id=push_id).first()
    if known is None and size != message.archive_bytes:
        raise UserError("push:source_missing", "The pushed source did not arrive in full: push again.", Kind.CONFLICT)
    deploy = known or services.accept_push(
        environment=pusher.environment,
        user=pusher.user,
        received=services.Received(
            id=push_id,
            ref=update.ref,
            commit=update.new,
            old_commit="" if is_zero(update.old) else update.old,
            subject=clean(message.subject)[:SUBJECT_CHARS],
            archive_bytes=message.archive_bytes,
        ),
    )
    if deploy.push_id != push_id:
        spool.remove_source(push_id)  # the same commit is being deployed already: its source is there
    return JsonResponse({"deploy": deploy.id.hex})


@with_ticket
def follow(request: HttpRequest, pusher: Pusher) -> JsonResponse:
    """The log from a line on; waits a while for news."""
    message = codec.decode(Follow, request.body)
    deploy = _deploy(pusher.environment, message.deploy)
    end = time.monotonic() + FOLLOW_WAIT_S
    while True:
        page = queries.log_page(deploy, after=message.after)
        if page.lines or page.done or time.monotonic() > end:
            break
        time.sleep(FOLLOW_STEP_S)
    deploy.refresh_from_db()
    ok = deploy.outcome == Outcome.SUCCEEDED
    return JsonResponse(
        {
            "lines": page.lines,
            "next": page.next,
            "done": page.done,
            "ok": ok,
            "message": _last_word(deploy) if page.done else "",
        }
    )


def _last_word(deploy: Deploy) -> str:
    environment = deploy.environment
    if deploy.outcome == Outcome.SUCCEEDED:
        return f"{environment.url}"
    live = routes.live_machine(environment)
    stays = f"Release {live.release.number} stays live." if live else "Nothing was live before."
    return f"{deploy.phase} {deploy.outcome}: {clean(deploy.message)} ({deploy.code})\n{stays}"


def _pusher(request: HttpRequest) -> Pusher:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    ticket = tickets.read(secret if scheme == "Bearer" else "")
    try:
        app = App.objects.select_related("owner").get(id=ticket.app_id, deleted_at=None, owner_id=ticket.user_id)
    except App.DoesNotExist:
        raise UserError("app:unknown", "There is no such app.", Kind.NOT_FOUND) from None
    return Pusher(ticket, app.owner, applications.production(app))


def _judge(environment: Environment, updates: tuple[Update, ...], options: int) -> Update:
    refusal = judge(updates, options=options, branch=environment.branch, git_url=environment.app.git_url)
    if refusal is not None:
        raise UserError(refusal.code, refusal.message)
    return updates[0]


def _deploy(environment: Environment, deploy_id: str) -> Deploy:
    try:
        return Deploy.objects.select_related("environment__app").get(id=uuid.UUID(deploy_id), environment=environment)
    except (Deploy.DoesNotExist, ValueError):
        raise UserError("deploy:unknown", "There is no such deploy.", Kind.NOT_FOUND) from None
