"""Machines in the background: compare with hosts, remove what is retired, pass on changed policies.

Every task is safe to run twice.
"""

from __future__ import annotations

from typing import Protocol

from celery import shared_task

from control import log
from control.errors import RetryLater
from control.hostapi import HostRefused
from control.machines import services
from control.machines.models import Host, Machine
from control.machines.states import Lifecycle
from hosts.wire.codec import WireError

logger = log.get(__name__)

SWEEP_MAX = 200


@shared_task(name="machines.reconcile")
def reconcile() -> None:
    """Compare every host with the rows."""
    services.ensure_configured_host()
    for host in Host.objects.order_by("name"):
        try:
            services.reconcile(host=host)
        except (RetryLater, HostRefused, WireError) as e:
            logger.warning("host not reconciled", host=host.name, error=str(e))


@shared_task(name="machines.sweep")
def sweep() -> None:
    """Remove retired machines that are drained, and pass on policies that changed."""
    rows = Machine.objects.select_related("environment__app", "release", "host")
    away: set[int] = set()  # a host that does not answer is asked once a sweep, not once a machine
    for machine in rows.filter(lifecycle=Lifecycle.RETIRING.value).order_by("drain_until")[:SWEEP_MAX]:
        _each(away, machine, services.remove_if_drained)
    for machine in rows.filter(lifecycle=Lifecycle.WANTED.value).exclude(policy_sent="").iterator():
        _each(away, machine, services.sync_policy)


class Verb(Protocol):
    """A verb of `services` on one machine."""

    def __call__(self, *, machine: Machine) -> object: ...


def _each(away: set[int], machine: Machine, verb: Verb) -> None:
    if machine.host_id in away:
        return
    try:
        verb(machine=machine)
    except RetryLater as e:
        away.add(machine.host_id)
        logger.warning("host away during the sweep", host=machine.host.name, error=str(e))
    except HostRefused as e:
        logger.warning("machine not swept", machine=machine.id.hex, error=str(e))


@shared_task(name="machines.remove")
def remove(machine_id: str) -> None:
    """Remove one retired machine; the sweep does it if this comes too early or fails."""
    machine = Machine.objects.select_related("environment__app", "release", "host").get(id=machine_id)
    try:
        services.remove_if_drained(machine=machine)
    except (RetryLater, HostRefused) as e:
        logger.warning("machine not removed yet", machine=machine_id, error=str(e))
