"""Machines in the background: compare with hosts, remove what is retired, pass on changed policies.

Every task is safe to run twice.
"""

from __future__ import annotations

from celery import shared_task

from control import log
from control.errors import RetryLater
from control.hostapi import HostRefused
from control.machines import services
from control.machines.models import Host, Machine
from control.machines.states import Lifecycle

logger = log.get(__name__)

SWEEP_MAX = 200


@shared_task(name="machines.reconcile")
def reconcile() -> None:
    """Compare every host with the rows."""
    services.ensure_configured_host()
    for host in Host.objects.order_by("name"):
        try:
            services.reconcile(host=host)
        except RetryLater as e:
            logger.warning("host not reconciled", host=host.name, error=str(e))


@shared_task(name="machines.sweep")
def sweep() -> None:
    """Remove retired machines that are drained, and pass on policies that changed."""
    rows = Machine.objects.select_related("environment__app", "release", "host")
    for machine in rows.filter(lifecycle=Lifecycle.RETIRING.value).order_by("drain_until")[:SWEEP_MAX]:
        try:
            services.remove_if_drained(machine=machine)
        except (RetryLater, HostRefused) as e:
            logger.warning("machine not removed yet", machine=machine.id.hex, error=str(e))
    for machine in rows.filter(lifecycle=Lifecycle.WANTED.value).exclude(policy_sent="")[:SWEEP_MAX]:
        try:
            services.sync_policy(machine=machine)
        except (RetryLater, HostRefused) as e:
            logger.warning("policy not passed on yet", machine=machine.id.hex, error=str(e))


@shared_task(name="machines.remove")
def remove(machine_id: str) -> None:
    """Remove one retired machine; the sweep does it if this comes too early or fails."""
    machine = Machine.objects.select_related("environment__app", "release", "host").get(id=machine_id)
    try:
        services.remove_if_drained(machine=machine)
    except (RetryLater, HostRefused) as e:
        logger.warning("machine not removed yet", machine=machine_id, error=str(e))
