"""The ledger: exact, once per session, and never changed."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from control.applications.sizes import SizeName
from control.billing import rates, services
from control.billing.models import Entry
from control.metering.models import Session
from tests.platform import rows
from tests.platform.metering.test_metering import Journal

pytestmark = pytest.mark.django_db


@pytest.fixture
def entry() -> Entry:
    journal = Journal(rows.machine(rows.app()))
    journal.send(journal.end("a", 0, 1500))
    services.charge_finished()
    return Entry.objects.get()


def test_each_size_has_a_rate() -> None:
    assert set(rates.RATES_MICROS_PER_S) == set(SizeName)


@pytest.mark.parametrize(("ms", "rate", "micros"), [(0, 5, 0), (199, 5, 0), (200, 5, 1), (1500, 5, 7), (999, 1, 0)])
def test_a_charge_is_rounded_down_once(ms: int, rate: int, micros: int) -> None:
    assert rates.charge_micros(ms, rate) == micros


def test_a_session_is_charged_once(entry: Entry) -> None:
    assert (entry.milliseconds, entry.rate_micros_per_s, entry.amount_micros) == (1500, 5, 7)
    services.charge_finished()
    assert Entry.objects.count() == 1
    with pytest.raises(IntegrityError), transaction.atomic():
        Entry.objects.create(
            app=entry.app, session=entry.session, size="small", milliseconds=1, rate_micros_per_s=1, amount_micros=1
        )


def test_an_open_session_is_not_charged() -> None:
    journal = Journal(rows.machine(rows.app()))
    journal.send(journal.start("a", 0))
    services.charge_finished()
    assert not Entry.objects.exists()


@pytest.mark.parametrize(
    "statement",
    ["UPDATE billing_entry SET amount_micros = 0", "DELETE FROM billing_entry", "TRUNCATE billing_entry"],
)
def test_nobody_changes_the_ledger(entry: Entry, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_entry ENABLE TRIGGER billing_entry_no_truncate")
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            cursor.execute(statement)
    assert Entry.objects.get() == entry


def test_a_charged_session_cannot_be_deleted(entry: Entry) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Session.objects.all().delete()
