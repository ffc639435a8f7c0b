"""Rows that control's tests need, made the way services make them."""

from __future__ import annotations

import itertools
import uuid

from control.accounts import services as accounts
from control.accounts.models import User
from control.applications import queries as applications
from control.applications import services as apps
from control.applications.models import App, Environment
from control.builds.models import Build
from control.deploys import services as deploys
from control.deploys.models import Deploy
from control.deploys.states import Outcome
from control.machines import services as machines
from control.machines.models import Machine
from control.releases import services as releases
from control.sources import spool
from control.sources.models import Push

PASSWORD = "a long enough phrase"
_numbers = itertools.count(1)


def user(email: str = "") -> User:
    return accounts.sign_up(email=email or f"user{next(_numbers)}@example.test", password=PASSWORD)


def token(owner: User) -> str:
    return accounts.create_token(user=owner, name="test").secret


def app(owner: User | None = None, name: str = "") -> App:
    return apps.create_app(owner=owner or user(), name=name or f"app{next(_numbers)}")


def commit() -> str:
    return uuid.uuid4().hex + "0" * 8


def received(*, of: str = "", old: str = "") -> deploys.Received:
    """A push whose source lies in the spool."""
    push_id = uuid.uuid4()
    spool.source_path(push_id).write_bytes(b"a tar")
    return deploys.Received(
        id=push_id, ref="refs/heads/main", commit=of or commit(), old_commit=old, subject="A change", archive_bytes=5
    )


def deploy(of_app: App, *, of: str = "", old: str | None = None) -> Deploy:
    """A push accepted; made from where the branch is, unless said otherwise."""
    environment = applications.production(of_app)
    if old is None:
        live = Deploy.objects.filter(environment=environment, outcome=Outcome.SUCCEEDED).order_by("number").last()
        old = live.push.commit if live and live.push else ""
    return deploys.accept_push(environment=environment, user=of_app.owner, received=received(of=of, old=old))


def machine(of: App) -> Machine:
    """A machine of some release; no host was told."""
    environment: Environment = applications.production(of)
    push = Push.objects.create(
        environment=environment, user=of.owner, ref="refs/heads/main", commit=commit(), old_commit="", archive_bytes=1
    )
    build = Build.objects.create(environment=environment, push=push, image_digest="a" * 64, kind="python", command="x")
    return machines.declare(environment=environment, release=releases.create(environment=environment, build=build))
