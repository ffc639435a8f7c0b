"""Every URL of control, asked by nobody and by a stranger. A new URL without an entry here fails the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from control.applications.models import App
from tests.platform import rows

pytestmark = pytest.mark.django_db

# Below these the dashboard (its own tests walk its pages) and Django's admin (staff only) answer.
ELSEWHERE = ("control.web.", "django.contrib.admin.")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

PUBLIC = {"healthz", "api/v1/", "api/v1/openapi.json", "^(?:api|internal)/"}
WITH_TOKEN = {
    "api/v1/apps": "/api/v1/apps",
    "api/v1/apps/<name>": "/api/v1/apps/{app}",
    "api/v1/apps/<name>/sleep": "/api/v1/apps/{app}/sleep",
    "api/v1/apps/<name>/wake": "/api/v1/apps/{app}/wake",
    "api/v1/apps/<name>/sessions": "/api/v1/apps/{app}/sessions",
    "api/v1/apps/<name>/wakes": "/api/v1/apps/{app}/wakes",
    "api/v1/apps/<name>/egress-log": "/api/v1/apps/{app}/egress-log",
    "api/v1/apps/<name>/deploys": "/api/v1/apps/{app}/deploys",
    "api/v1/apps/<name>/deploys/<number>": "/api/v1/apps/{app}/deploys/1",
    "api/v1/apps/<name>/deploys/<number>/log": "/api/v1/apps/{app}/deploys/1/log",
}
WITH_PASSWORD = {
    r"^(?P<slug>[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?)\.git/info/refs\Z": "/{app}.git/info/refs?service=git-upload-pack",
    r"^(?P<slug>[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?)\.git/(?P<service>git-upload-pack|git-receive-pack)\Z": (
        "/{app}.git/git-receive-pack"
    ),
}
WITH_OTHER_SECRET = {
    "internal/v1/hosts/<str:host_id>/events": "/internal/v1/hosts/host-0/events",
    "internal/v1/push/check": "/internal/v1/push/check",
    "internal/v1/push/received": "/internal/v1/push/received",
    "internal/v1/push/follow": "/internal/v1/push/follow",
}


def all_routes(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[tuple[str, str]]:
    for entry in (resolver or get_resolver()).url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLPattern):
            yield route, f"{entry.callback.__module__}."
        else:
            yield from all_routes(entry, route)


def foreign_app() -> App:
    return rows.app(name="theirs")


def test_every_url_is_in_one_of_the_lists() -> None:
    ours = {route for route, module in all_routes() if not module.startswith(ELSEWHERE) and route[:6] != "admin/"}
    assert ours == {*PUBLIC, *WITH_TOKEN, *WITH_PASSWORD, *WITH_OTHER_SECRET}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", [*WITH_TOKEN.values(), *WITH_PASSWORD.values(), *WITH_OTHER_SECRET.values()])
def test_without_a_secret_nothing_is_answered(path: str, method: str) -> None:
    app = foreign_app()
    content = "application/x-git-receive-pack-request" if ".git" in path else "application/json"
    answer = Client().generic(method, path.format(app=app.slug), data="{}", content_type=content)
    assert answer.status_code in (401, 404, 405)
    assert app.owner.email not in answer.content.decode()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", [p for p in WITH_TOKEN.values() if "{app}" in p])
def test_a_foreign_app_is_as_unknown_as_none(path: str, method: str) -> None:
    app = foreign_app()
    headers = {"Authorization": f"Bearer {rows.token(rows.user())}"}

    def ask(name: str) -> tuple[int, bytes]:
        answer = Client().generic(
            method, path.format(app=name), data="{}", content_type="application/json", headers=headers
        )
        return answer.status_code, answer.content

    theirs = ask(app.slug)
    assert theirs == ask("no-such-app")
    assert theirs[0] in (404, 405)
    assert App.objects.get(id=app.id).deleted_at is None
