"""The internal API for hosts (`hosts/wire/SPEC.md` section 2): events in, acknowledgement out.

The host's token is asked first.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.billing import services as billing
from control.machines import services as machines
from control.metering import services as metering
from hosts.wire import codec
from hosts.wire.commands import ErrorBody
from hosts.wire.events import EventAck, EventBatch


@csrf_exempt
@require_POST
def host_events(request: HttpRequest, host_id: str) -> HttpResponse:
    """Store a batch for good, then say so."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    host = machines.authenticate_host(name=host_id, token=token) if scheme == "Bearer" else None
    if host is None:
        return _answer(ErrorBody("host:token_invalid", "This is not that host's token."), 401)
    try:
        batch = codec.decode(EventBatch, request.body)
    except codec.WireError as e:
        return _answer(ErrorBody("wire:bad_message", str(e)), 400)
    if batch.host_id != host.name or len(batch.events) > metering.BATCH_MAX:
        return _answer(ErrorBody("wire:bad_message", "another host's batch, or too many events in it"), 400)
    acked = metering.ingest(host=host, batch=batch)
    billing.charge_finished()
    return _answer(EventAck(acked_seq=acked), 200)


def _answer(message: object, status: int) -> HttpResponse:
    return HttpResponse(codec.encode(message), status=status, content_type="application/json")
