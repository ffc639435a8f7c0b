"""The internal API for hosts."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import Client

from control.billing.models import Entry
from control.metering.models import HostEvent, Session
from hosts.wire import codec
from hosts.wire.events import EventBatch
from tests.platform import rows
from tests.platform.metering.test_metering import Journal

pytestmark = pytest.mark.django_db


def post(batch: EventBatch | bytes, *, host: str = "host-0", token: str | None = None) -> tuple[int, dict[str, object]]:
    answer = Client().post(
        f"/internal/v1/hosts/{host}/events",
        data=batch if isinstance(batch, bytes) else codec.encode(batch),
        content_type="application/json",
        headers={"Authorization": f"Bearer {settings.HOST_TOKEN if token is None else token}"},
    )
    return answer.status_code, answer.json()


def test_events_are_stored_acknowledged_and_charged() -> None:
    journal = Journal(rows.machine(rows.app()))
    batch = EventBatch("host-0", journal.id, (journal.start("a", 0), journal.end("a", 0, 2000)))
    assert post(batch) == (200, {"acked_seq": 2})
    assert post(batch) == (200, {"acked_seq": 2})
    assert Session.objects.count() == Entry.objects.count() == 1


@pytest.mark.parametrize("token", ["", "wrong", "x" * 64])
def test_without_the_hosts_token_nothing_is_stored(token: str) -> None:
    journal = Journal(rows.machine(rows.app()))
    status, answer = post(EventBatch("host-0", journal.id, (journal.start("a", 0),)), token=token)
    assert (status, answer["code"]) == (401, "host:token_invalid")
    assert not HostEvent.objects.exists()


def test_a_host_speaks_for_itself_only() -> None:
    journal = Journal(rows.machine(rows.app()))
    assert post(EventBatch("host-1", journal.id, (journal.start("a", 0),)))[0] == 400
    assert post(EventBatch("host-1", journal.id, ()), host="host-1")[0] == 401


@pytest.mark.parametrize("body", [b"", b"[]", b'{"host_id": "host-0"}', b"\xff"])
def test_a_malformed_batch_is_refused(body: bytes) -> None:
    assert post(body)[0] == 400
