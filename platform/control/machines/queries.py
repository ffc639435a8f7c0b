"""Reads on hosts and machines."""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings
from django.db.models import Count, Q

from control.machines.models import Host, Machine
from control.machines.placement import Candidate
from control.machines.states import Lifecycle


def token_digest(token: str) -> str:
    """What is stored of a host's token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def host_of_token(name: str, token: str) -> Host | None:
    """The host of that name if the token is its own."""
    host = Host.objects.filter(name=name).first()
    if host is None or not hmac.compare_digest(host.token_digest, token_digest(token)):
        return None
    return host


def candidates() -> list[Candidate]:
    """Every host, with the number of machines wanted on it."""
    counted = Host.objects.annotate(wanted=Count("machines", filter=Q(machines__lifecycle=Lifecycle.WANTED.value)))
    return [Candidate(h.name, h.wanted) for h in counted]


def is_configured_host(name: str, token: str) -> bool:
    """Whether these are the name and token that this box was set up with."""
    return name == settings.HOST_ID and hmac.compare_digest(token_digest(settings.HOST_TOKEN), token_digest(token))


def machine(machine_id: str) -> Machine | None:
    """A machine by its wire id; None too for an id that is none."""
    if len(machine_id) != 32 or not machine_id.isalnum():
        return None
    try:
        return Machine.objects.filter(id=machine_id).first()
    except ValueError:
        return None
