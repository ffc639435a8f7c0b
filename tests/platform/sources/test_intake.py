"""The internal API of the hook takes nothing without a push's own ticket."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.test import Client

from control.applications.models import App
from control.deploys.models import Deploy
from control.sources import spool, tickets
from tests.platform import rows

pytestmark = pytest.mark.django_db
UPDATE = {"old": "0" * 40, "new": "2" * 40, "ref": "refs/heads/main"}


def ticket(app: App, push_id: uuid.UUID | None = None) -> str:
    return tickets.issue(tickets.Ticket(push_id or uuid.uuid4(), app.id, app.owner_id))


def ask(verb: str, secret: str, message: object) -> tuple[int, dict[str, Any]]:
    answer = Client().post(
        f"/internal/v1/push/{verb}",
        data=message if isinstance(message, str) else json.dumps(message),
        content_type="application/json",
        headers={"Authorization": f"Bearer {secret}"},
    )
    return answer.status_code, answer.json()


@pytest.mark.parametrize("verb", ["check", "received", "follow"])
@pytest.mark.parametrize("secret", ["", "x", "Bearer x", "WyJ4Il0:1:abc"])
def test_without_a_ticket_nothing_is_answered(verb: str, secret: str) -> None:
    assert ask(verb, secret, {"updates": [], "options": 0})[0] == 401


def test_a_ticket_lapses(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = ticket(rows.app())
    monkeypatch.setattr(tickets, "MAX_AGE_S", -1)
    assert ask("check", secret, {"updates": [UPDATE], "options": 0})[0] == 401


def test_the_policy_is_asked_at_each_step() -> None:
    app = rows.app()
    other = {**UPDATE, "ref": "refs/heads/feature"}
    status, answer = ask("check", ticket(app), {"updates": [other], "options": 0})
    assert (status, answer["code"]) == (422, "push:other_branch")
    push = {"updates": [other], "options": 0, "subject": "", "archive_bytes": 0}
    assert ask("received", ticket(app), push)[1]["code"] == "push:other_branch"


def test_a_push_without_its_source_is_refused() -> None:
    push = {"updates": [UPDATE], "options": 0, "subject": "", "archive_bytes": 5}
    assert ask("received", ticket(rows.app()), push)[1]["code"] == "push:source_missing"
    assert not Deploy.objects.exists()


def test_a_push_is_registered_once_however_often_it_is_said() -> None:
    app, push_id = rows.app(), uuid.uuid4()
    spool.source_path(push_id).write_bytes(b"a tar")
    push = {"updates": [UPDATE], "options": 0, "subject": "\x1b[2Jhi", "archive_bytes": 5}
    first = ask("received", ticket(app, push_id), push)
    assert first[0] == 200
    assert ask("received", ticket(app, push_id), push) == first
    deploy = Deploy.objects.get()
    assert deploy.push is not None
    assert deploy.push.subject == "\\x1b[2Jhi"
    spool.remove_source(push_id)


def test_a_foreign_deploy_is_unknown() -> None:
    deploy = rows.deploy(rows.app())
    status, answer = ask("follow", ticket(rows.app()), {"deploy": deploy.id.hex, "after": 0})
    assert (status, answer["code"]) == (404, "deploy:unknown")


@pytest.mark.parametrize("message", ["", "[]", "{}", '{"updates": [{"old": 1}], "options": 0}', '{"updates": "x"}'])
def test_a_malformed_message_is_refused(message: str) -> None:
    assert ask("check", ticket(rows.app()), message)[0] == 400
