"""Releases are numbered without gap within their environment and keep the variables of their moment."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from control.applications import queries as applications
from control.applications import services as apps
from control.applications import vault
from control.releases import queries
from control.releases.models import Release
from tests.platform import rows

pytestmark = pytest.mark.django_db


def test_numbers_count_up_within_an_app() -> None:
    app, other = rows.app(), rows.app()
    for of in (app, other, app):
        rows.machine(of)
    assert [r.number for r in queries.releases_of(app)] == [2, 1]
    assert [r.number for r in queries.releases_of(other)] == [1]


def test_a_number_is_never_given_twice() -> None:
    release = rows.machine(rows.app()).release
    release.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        release.save(force_insert=True)


def test_a_release_keeps_its_variables() -> None:
    app = rows.app()
    environment = applications.production(app)
    apps.store_variables(environment=environment, values={"A": "1"})
    rows.machine(app)
    apps.store_variables(environment=environment, values={"A": "2"})
    rows.machine(app)
    kept = [vault.unseal_map(r.variables_ciphertext) for r in Release.objects.order_by("number")]
    assert kept == [{"A": "1"}, {"A": "2"}]
