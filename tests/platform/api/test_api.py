"""The public API: its fields, its refusals, and what it does to an app."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog
from django.test import Client

from control import clock
from control.accounts.models import User
from control.applications import queries as applications
from control.deploys import pipeline
from control.deploys.models import Deploy
from control.metering.models import Wake
from hosts.wire.allowlist import AllowedName
from hosts.wire.commands import ErrorBody, Failure, OutboundName
from tests.platform import rows
from tests.platform.fakehost import FakeEdge, FakeHost

pytestmark = pytest.mark.django_db

APP_FIELDS = {
    "name",
    "state",
    "url",
    "git_url",
    "idle_period_s",
    "suspend_after_s",
    "release",
    "egress",
    "egress_allow",
    "robots_wake",
    "no_wake_methods",
    "no_wake_paths",
    "waiting_page",
}


class Api:
    """A client with a token."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.headers = {"Authorization": f"Bearer {rows.token(user)}"}

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        answer = Client().generic(
            method,
            f"/api/v1{path}",
            data="" if body is None else json.dumps(body),
            content_type="application/json",
            headers=self.headers,
        )
        return answer.status_code, json.loads(answer.content) if answer.content else None


@pytest.fixture
def api() -> Api:
    return Api(rows.user())


@pytest.fixture
def live(api: Api, edge: FakeEdge, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an app with a live release."""
    monkeypatch.setattr(pipeline, "BUILD_PAUSE_S", 0)
    app = rows.app(api.user)
    deploy = rows.deploy(app)
    while not Deploy.objects.get(id=deploy.id).outcome:
        pipeline.work(deploy.id)
    return app.slug


def test_an_app_is_created_read_changed_listed_and_deleted(api: Api, edge: FakeEdge) -> None:
    status, app = api("POST", "/apps", {"name": "blog"})
    assert status == 201
    assert set(app) == APP_FIELDS
    assert app == {
        "name": "blog",
        "state": "empty",
        "url": "http://blog.localhost:8080/",
        "git_url": "http://127.0.0.1:8000/blog.git",
        "idle_period_s": 60,
        "suspend_after_s": 300,
        "egress": "none",
        "egress_allow": [],
        "robots_wake": False,
        "no_wake_methods": [],
        "no_wake_paths": [],
        "waiting_page": False,
        "release": None,
    }
    assert api("GET", "/apps/blog") == (200, app)
    status, changed = api("PATCH", "/apps/blog", {"idle_period_s": 5})
    assert (status, changed["idle_period_s"], changed["suspend_after_s"]) == (200, 5, 300)
    assert api("GET", "/apps") == (200, [changed])
    assert api("DELETE", "/apps/blog") == (204, None)
    assert api("GET", "/apps/blog")[0] == 404
    assert api("GET", "/apps") == (200, [])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "-x"}, 422, "app:name_invalid"),
        ({"name": "www"}, 422, "app:name_reserved"),
        ({"name": "taken"}, 409, "app:name_taken"),
        ({"name": 5}, 422, "api:invalid"),
        ({}, 422, "api:invalid"),
        ({"name": "x", "owner": 1}, 422, "api:invalid"),
        ([], 422, "api:invalid"),
    ],
)
def test_a_bad_app_is_refused_with_a_code(api: Api, body: object, status: int, code: str) -> None:
    rows.app(name="taken")
    found, answer = api("POST", "/apps", body)
    assert (found, answer["code"]) == (status, code)
    assert answer["message"]


def test_an_allow_list_is_put_in_normal_form_and_told_to_the_host(api: Api, live: str, edge: FakeEdge) -> None:
    body = {"egress": "allowlist", "egress_allow": ["PyPI.example.", "*.Bücher.example:443", "pypi.example:8443"]}
    status, app = api("PATCH", f"/apps/{live}", body)
    assert (status, app["egress"]) == (200, "allowlist")
    assert app["egress_allow"] == ["pypi.example:443,80,8443", "*.xn--bcher-kva.example:443"]
    policy = edge.host.policies[-1][1]
    assert policy.egress_allow == (
        AllowedName("pypi.example", (443, 80, 8443)),
        AllowedName("*.xn--bcher-kva.example", (443,)),
    )
    assert api("PATCH", f"/apps/{live}", {"egress": "open"})[1]["egress_allow"] == app["egress_allow"], "kept for later"
    assert edge.host.policies[-1][1].egress_allow == ()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"egress_allow": ["pypi.example"]}, 'only with egress "allowlist"'),
        ({"egress": "allowlist", "egress_allow": ["https://pypi.example/"]}, "ports"),
        ({"egress": "allowlist", "egress_allow": ["192.0.2.1"]}, "is an address"),
        ({"egress": "allowlist", "egress_allow": ["*"]}, "a star stands alone"),
        ({"egress": "allowlist", "egress_allow": ["*.example"]}, "top-level"),
        ({"egress": "allowlist", "egress_allow": ["a.example:0"]}, "1 to 65535"),
        ({"egress": "allowlist", "egress_allow": ["a.example"] * 101}, "at most 100"),
    ],
)
def test_a_bad_allow_list_is_refused_with_a_reason(api: Api, body: object, word: str) -> None:
    rows.app(api.user, "blog")
    status, answer = api("PATCH", "/apps/blog", body)
    assert (status, answer["code"]) == (422, "app:policy_invalid")
    assert word in answer["message"]


def test_the_names_an_app_asked_for_are_shown(api: Api, live: str, edge: FakeEdge) -> None:
    edge.host.outbound = [OutboundName("evil.example", allowed=False, count=3, last_ms=1_700_000_000_000)]
    assert api("GET", f"/apps/{live}/egress-log") == (
        200,
        [{"name": "evil.example", "allowed": False, "count": 3, "last_seen": "2023-11-14T22:13:20Z"}],
    )


def test_what_is_no_json_is_refused_with_a_code(api: Api) -> None:
    answer = Client().post("/api/v1/apps", data="{", content_type="application/json", headers=api.headers)
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"code", "message"}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", "Basic eDp4", "Bearer burrow_" + "x" * 43])
def test_without_a_valid_token_everything_is_401(header: str) -> None:
    answer = Client().get("/api/v1/apps", headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.json()["code"] == "token:invalid"


def test_an_app_sleeps_and_wakes(api: Api, live: str, host: FakeHost) -> None:
    assert api("POST", f"/apps/{live}/sleep")[1]["state"] == "paused"
    assert api("POST", f"/apps/{live}/sleep", {"to": "suspended"})[1]["state"] == "suspended"
    assert api("GET", f"/apps/{live}")[1]["state"] == "suspended"
    assert api("POST", f"/apps/{live}/wake")[1]["state"] == "running"
    assert api("POST", f"/apps/{live}/sleep", {"to": "coma"})[0] == 422
    host.refuse["POST machines/sleep"] = (409, ErrorBody("machine:not_running", "It is stopped."))
    status, answer = api("POST", f"/apps/{live}/sleep")
    assert (status, answer) == (409, {"code": "machine:not_running", "message": "It is stopped."})


def test_an_app_without_release_neither_sleeps_nor_wakes(api: Api) -> None:
    app = rows.app(api.user)
    for verb in ("sleep", "wake"):
        status, answer = api("POST", f"/apps/{app.slug}/{verb}")
        assert (status, answer["code"]) == (409, "app:empty")


def test_an_unreachable_host_is_503(api: Api, live: str, edge: FakeEdge) -> None:
    edge.stop()
    status, answer = api("POST", f"/apps/{live}/wake")
    assert (status, answer["code"]) == (503, "host:unreachable")


def test_deploys_carry_phase_outcome_and_times(api: Api, live: str, host: FakeHost) -> None:
    host.plan(live).build_failure = Failure("build:timeout", "installing", "It took too long.")
    app = applications.app_of(api.user, live)
    failed = rows.deploy(app)
    while not Deploy.objects.get(id=failed.id).outcome:
        pipeline.work(failed.id)
    status, (second, first) = api("GET", f"/apps/{live}/deploys")
    assert status == 200
    assert (first["phase"], first["outcome"], first["release"], first["code"]) == ("live", "succeeded", 1, None)
    assert (second["phase"], second["outcome"], second["code"]) == ("build", "failed", "build:timeout")
    assert {"queued", "build", "build.done", "boot", "checkpoint", "switch"} <= {p["phase"] for p in first["phases"]}
    assert all(p["seconds"] >= 0 for p in first["phases"])
    assert api("GET", f"/apps/{live}/deploys/1")[1] == first
    log = api("GET", f"/apps/{live}/deploys/1/log?after=1")[1]
    assert log["done"]
    assert any("Installing flask" in line for line in log["lines"])
    assert api("GET", f"/apps/{live}/deploys/9")[1]["code"] == "deploy:unknown"


def test_variables_are_set_and_never_shown(api: Api, live: str) -> None:
    status, app = api("PATCH", f"/apps/{live}", {"env": {"API_KEY": "canary-77"}})
    assert status == 200
    assert "canary" not in json.dumps(app)
    assert api("GET", f"/apps/{live}/deploys")[1][0]["subject"] == "New configuration"
    assert api("PATCH", f"/apps/{live}", {"env": {"bad name": "x"}})[1]["code"] == "variable:name_invalid"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=100000", "before=yesterday", "before=0001-01-01T00:00:00%2B23:59"]
)
def test_bad_queries_are_refused(api: Api, query: str) -> None:
    app = rows.app(api.user)
    assert api("GET", f"/apps/{app.slug}/sessions?{query}")[0] == 422


@pytest.mark.parametrize("before", ["2026-01-01T00:00:00-23:59", "2026-01-01T00:00:00"])
def test_a_moment_may_have_any_offset(api: Api, before: str) -> None:
    app = rows.app(api.user)
    assert api("GET", f"/apps/{app.slug}/sessions?before={before}") == (200, [])


def test_wakes_are_listed_with_their_steps(api: Api) -> None:
    app = rows.app(api.user)
    machine = rows.machine(app)
    steps = [{"name": "load", "ms": 98.5}]
    Wake.objects.create(
        event_id="e", machine=machine, environment=machine.environment, asked_at=clock.from_ms(1_700_000_000_000),
        cause="request", request="r-1", waited=2, start="resume", queue_ms=1.5, ready_ms=300, steps=steps,
    )  # fmt: skip
    assert api("GET", f"/apps/{app.slug}/wakes?limit=1") == (
        200,
        [
            {
                "id": "e",
                "asked_at": "2023-11-14T22:13:20Z",
                "cause": "request",
                "request": "r-1",
                "kept": False,
                "waited": 2,
                "start": "resume",
                "reason": None,
                "queue_ms": 1.5,
                "ready_ms": 300.0,
                "first_byte_ms": None,
                "code": None,
                "phase": None,
                "steps": steps,
            }
        ],
    )
    assert api("GET", f"/apps/{app.slug}/wakes?before=2023-11-14T22:13:20Z") == (200, [])
    assert api("GET", f"/apps/{app.slug}/wakes?limit=1001")[0] == 422


def test_a_name_that_cannot_be_looked_for_is_unknown(api: Api) -> None:
    assert api("GET", "/apps/a%00b")[0] == 404


def test_the_description_names_every_path() -> None:
    description = Client().get("/api/v1/openapi.json").json()
    assert set(description["paths"]) >= {
        "/api/v1/apps",
        "/api/v1/apps/{name}",
        "/api/v1/apps/{name}/sleep",
        "/api/v1/apps/{name}/wake",
        "/api/v1/apps/{name}/sessions",
        "/api/v1/apps/{name}/wakes",
        "/api/v1/apps/{name}/deploys",
    }


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/", "/api/v2/apps", "/internal/v1/nothing"])
def test_an_unknown_path_is_answered_in_json(path: str) -> None:
    answer = Client().get(path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "api:not_found"


def test_what_breaks_inside_is_answered_as_json_and_logged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(user: User) -> None:
        raise RuntimeError("the secret detail")

    monkeypatch.setattr(applications, "apps_of", broken)
    with structlog.testing.capture_logs() as logged:
        status, answer = api("GET", "/apps")
    assert (status, answer["code"]) == (500, "api:internal")
    assert "secret" not in answer["message"]
    assert [line["path"] for line in logged] == ["/api/v1/apps"]


@pytest.mark.parametrize("value", [True, 61.0, "61"])
def test_seconds_are_whole_numbers_and_nothing_like_them(api: Api, value: object) -> None:
    api("POST", "/apps", {"name": "blog"})
    assert api("PATCH", "/apps/blog", {"idle_period_s": value})[0] == 422


def test_what_leaves_an_app_asleep_is_set_and_read(api: Api) -> None:
    api("POST", "/apps", {"name": "blog"})
    policy = {"robots_wake": True, "no_wake_methods": ["HEAD"], "no_wake_paths": ["/cron/*", "/health"]}
    policy["waiting_page"] = True
    status, changed = api("PATCH", "/apps/blog", policy)
    assert status == 200
    assert {name: changed[name] for name in policy} == policy
    assert api("PATCH", "/apps/blog", {"idle_period_s": 7})[1]["no_wake_paths"] == ["/cron/*", "/health"]
    assert api("PATCH", "/apps/blog", {"no_wake_paths": []})[1]["no_wake_paths"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"robots_wake": 1},
        {"waiting_page": "yes"},
        {"no_wake_methods": "HEAD"},
        {"no_wake_methods": ["get"]},
        {"no_wake_paths": ["health"]},
        {"no_wake_paths": ["/a*b"]},
        {"no_wake_paths": ["/a?b=1"]},
        {"no_wake_paths": ["/a b"]},
        {"no_wake_paths": ["/a#b"]},
        {"no_wake_paths": ["/\u00e9"]},
        {"no_wake_paths": ["/" + "x" * 200]},
        {"no_wake_paths": [f"/{i}" for i in range(33)]},
    ],
)
def test_a_wake_policy_that_is_none_is_refused(change: dict[str, object], api: Api) -> None:
    api("POST", "/apps", {"name": "blog"})
    assert api("PATCH", "/apps/blog", change)[0] == 422
    assert api("GET", "/apps/blog")[1]["no_wake_paths"] == []
