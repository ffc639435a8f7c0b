"""Names, settings and variables of apps."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction
from django.test import override_settings

from control.applications import queries, services, vault
from control.applications.models import App, Variable
from control.errors import UserError
from tests.platform import rows

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ["a", "blog", "my-app-2", "0", "a" * 40])
def test_a_good_name_is_accepted(name: str) -> None:
    assert rows.app(name=name).slug == name


HOSTILE_NAMES = [
    "-blog", "blog-", "Blog", "a b", "a" * 41, "a;id", "../x", "a.b", "blog\n", "bl\u00f6g", "%2e", ".git",
    "a/b", "$(id)", "--upload-pack=x", "\u0430pp", "a_b",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_bad_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(UserError, match="lower-case letters") as refused:
        services.create_app(owner=rows.user(), name=name)
    assert refused.value.code == "app:name_invalid"


@pytest.mark.parametrize("name", HOSTILE_NAMES[:-3])
def test_the_database_holds_the_rule_too(name: str) -> None:
    with pytest.raises((IntegrityError, Exception)), transaction.atomic():
        App.objects.create(owner=rows.user(), slug=name)


@pytest.mark.parametrize("name", ["www", "api", "admin", "localhost", "xn--bcher-kva"])
def test_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(UserError) as refused:
        services.create_app(owner=rows.user(), name=name)
    assert refused.value.code == "app:name_reserved"


def test_a_name_is_taken_for_everybody_until_the_app_is_deleted() -> None:
    app = rows.app(name="blog")
    with pytest.raises(UserError) as refused:
        rows.app(name="blog")
    assert refused.value.code == "app:name_taken"
    assert services.mark_deleted(app=app)
    assert rows.app(name="blog").id != app.id


def test_a_foreign_app_is_unknown() -> None:
    app = rows.app()
    with pytest.raises(App.DoesNotExist):
        queries.app_of(rows.user(), app.slug)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a" * 5000, ""])
def test_a_name_no_app_can_have_is_unknown(name: str) -> None:
    with pytest.raises(App.DoesNotExist):
        queries.app_of(rows.user(), name)


@pytest.mark.parametrize("policy", [{"idle_period_s": 0}, {"idle_period_s": 10**9}, {"suspend_after_s": -1}])
def test_a_policy_out_of_bounds_is_refused(policy: dict[str, int]) -> None:
    with pytest.raises(UserError) as refused:
        services.set_policy(app=rows.app(), **policy)  # type: ignore[arg-type]
    assert refused.value.code == "app:policy_invalid"


def test_a_variables_value_is_nowhere_in_the_database() -> None:
    environment = queries.production(rows.app())
    services.store_variables(environment=environment, values={"API_KEY": "canary-5f1d"})
    assert "canary" not in str(list(Variable.objects.values()))
    assert queries.variables(environment) == {"API_KEY": "canary-5f1d"}
    assert queries.variable_names(environment) == ["API_KEY"]


def test_another_installation_cannot_read_the_values() -> None:
    sealed = vault.seal("canary")
    with override_settings(SECRET_KEY="another" * 8), pytest.raises(Exception):  # noqa: B017, PT011
        vault.unseal(sealed)


def test_variables_are_removed_and_told_apart() -> None:
    environment = queries.production(rows.app())
    assert services.store_variables(environment=environment, values={"A": "1", "B": "2"})
    assert not services.store_variables(environment=environment, values={"A": "1"})
    assert services.store_variables(environment=environment, values={"A": None})
    assert not services.store_variables(environment=environment, values={"A": None})
    assert queries.variables(environment) == {"B": "2"}


@pytest.mark.parametrize("name", ["", "1A", "a", "A-B", "A=B", "PORT", "HOST", "PATH", "BURROW_X", "A\n", "A" * 101])
def test_a_bad_variable_name_is_refused(name: str) -> None:
    with pytest.raises(UserError):
        services.store_variables(environment=queries.production(rows.app()), values={name: "x"})


@pytest.mark.parametrize("value", ["a\0b", "x" * 40_000, "a\ud800b"])
def test_a_bad_variable_value_is_refused(value: str) -> None:
    with pytest.raises(UserError):
        services.store_variables(environment=queries.production(rows.app()), values={"A": value})
