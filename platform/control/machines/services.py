"""Verbs on hosts and machines: declare, start, sleep, wake, retire, remove. What a host answers is taken over by
`observe`.

No database transaction is ever open while a host is asked.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db import DataError, transaction

from control import clock, log
from control.applications import vault
from control.applications.models import App, Environment
from control.applications.sizes import SIZES, SizeName
from control.errors import Kind, UserError
from control.hostapi import HostApi, HostRefused, HostUnreachable
from control.machines import observe, placement, queries
from control.machines.models import Host, Machine, MachineTransition
from control.machines.states import Lifecycle, LifecycleEvent, after
from control.releases.models import Release
from hosts.wire import allowlist, codec
from hosts.wire.codec import WireError
from hosts.wire.commands import MachineReport, OutboundName, SleepDepth
from hosts.wire.spec import Egress, ImageDigest, MachineId, MachineSpec, Policy, Process
from hosts.wire.states import MachineState

logger = log.get(__name__)

DRAIN_S = 5  # how long a retiring machine is left alone, for requests that were on their way to it
DRAIN_MAX_S = 60  # requests still in flight after that are cut
SLEEP_BUSY_WAIT_S = 8.0  # the last request's end takes a moment to be known: "busy" is asked again for that long
SLEEP_BUSY_STEP_S = 0.25
PUBLIC_HOST = "BURROW_PUBLIC_HOST"  # tells the app where it is served; some frameworks refuse any other host


def ensure_host(*, name: str, token: str) -> Host:
    """The host of that name, with that token."""
    digest = queries.token_digest(token)
    host, _ = Host.objects.get_or_create(name=name, defaults={"token_digest": digest})
    if host.token_digest != digest:
        host.token_digest = digest
        host.save(update_fields=["token_digest"])
    return host


def ensure_configured_host() -> Host:
    """The host this box was set up with."""
    return ensure_host(name=settings.HOST_ID, token=settings.HOST_TOKEN)


def authenticate_host(*, name: str, token: str) -> Host | None:
    """The host that carries this token, or None.

    The box's own host is known from the settings before any row exists.
    """
    host = queries.host_of_token(name, token)
    if host is None and queries.is_configured_host(name, token):
        host = ensure_configured_host()
    if host is not None:
        Host.objects.filter(id=host.id).update(seen_at=clock.now())
    return host


def choose_host() -> Host:
    """Where the next machine or build goes."""
    ensure_configured_host()
    name = placement.choose(queries.candidates())
    return Host.objects.get(name=name)


def policy_of(app: App) -> Policy:
    """What the app's settings mean for its machines."""
    egress = Egress(app.egress)
    allow = tuple(allowlist.parse(entry) for entry in app.egress_allow) if egress is Egress.ALLOWLIST else ()
    return Policy(app.idle_period_s, app.suspend_after_s, egress, allow)


def spec_of(machine: Machine) -> MachineSpec:
    """What the host is asked to run: the same for the same machine, but for the policy."""
    release = machine.release
    variables = vault.unseal_map(release.variables_ciphertext) | {PUBLIC_HOST: machine.environment.hostname}
    return MachineSpec(
        machine_id=MachineId(machine.id.hex),
        app=machine.environment.app.slug,
        release=release.number,
        image=ImageDigest(release.image_digest),
        process=Process(command=release.command, cwd=release.cwd, env=tuple(sorted(variables.items()))),
        size=SIZES[SizeName(machine.size)],
        policy=policy_of(machine.environment.app),
    )


def declare(*, environment: Environment, release: Release) -> Machine:
    """A row for a machine that should exist. Part of the caller's transaction; no host knows of it yet."""
    return Machine.objects.create(
        environment=environment, release=release, host=choose_host(), size=environment.app.size
    )


def start(*, machine: Machine) -> MachineReport:
    """Tell the host; again is fine."""
    spec = spec_of(machine)
    report = HostApi(machine.host.name).put_machine(spec)
    Machine.objects.filter(id=machine.id).update(policy_sent=_policy_text(spec.policy))
    observe.take_report(machine, report)
    return report


def look(*, machine: Machine, wait_s: int = 0) -> MachineReport:
    """Ask the host about one machine."""
    report = HostApi(machine.host.name).machine(machine.id.hex, wait_s=wait_s)
    observe.take_report(machine, report)
    return report


def checkpoint(*, machine: Machine) -> MachineReport:
    """Keep a snapshot of the machine as it is."""
    report = HostApi(machine.host.name).checkpoint(machine.id.hex)
    observe.take_report(machine, report)
    return report


def sleep(*, machine: Machine, to: SleepDepth) -> str:
    """Put a machine to sleep and wait until it is; its state then."""
    end = time.monotonic() + SLEEP_BUSY_WAIT_S
    with _shown():
        while True:
            try:
                report = HostApi(machine.host.name).sleep(machine.id.hex, to)
                break
            except HostRefused as e:
                if e.code != "machine:busy" or time.monotonic() > end:
                    raise
                time.sleep(SLEEP_BUSY_STEP_S)
    observe.take_report(machine, report)
    return report.state.value


def wake(*, machine: Machine) -> str:
    """Wake a machine and wait until it runs; its state then."""
    with _shown():
        report = HostApi(machine.host.name).wake(machine.id.hex)
    observe.take_report(machine, report)
    return report.state.value


def outbound(*, machine: Machine) -> tuple[OutboundName, ...]:
    """The names it asked for, as its host remembers them, newest first."""
    with _shown():
        return HostApi(machine.host.name).outbound(machine.id.hex)


def retire(*, machine: Machine, drain_s: float | None = None) -> bool:
    """The machine should go once drained. False if that was decided already."""
    new = after(Lifecycle.WANTED, LifecycleEvent.RETIRE)
    drain = timedelta(seconds=DRAIN_S if drain_s is None else drain_s)
    with transaction.atomic():
        changed = Machine.objects.filter(id=machine.id, lifecycle=Lifecycle.WANTED.value).update(
            lifecycle=new.value, drain_until=clock.now() + drain
        )
        if changed:
            _note_lifecycle(machine, Lifecycle.WANTED, new)
    return bool(changed)


def remove_if_drained(*, machine: Machine) -> bool:
    """Remove a retiring machine from its host, unless requests are still in flight. True once it is gone."""
    now = clock.now()
    if machine.lifecycle != Lifecycle.RETIRING or machine.drain_until is None or now < machine.drain_until:
        return machine.lifecycle == Lifecycle.GONE
    host = HostApi(machine.host.name)
    if now < machine.drain_until + timedelta(seconds=DRAIN_MAX_S):
        try:
            if host.machine(machine.id.hex).in_flight:
                return False
        except HostRefused as e:
            if e.status != 404:
                raise
    host.delete_machine(machine.id.hex)
    new = after(Lifecycle.RETIRING, LifecycleEvent.REMOVED)
    with transaction.atomic():
        changed = Machine.objects.filter(id=machine.id, lifecycle=Lifecycle.RETIRING.value).update(
            lifecycle=new.value, gone_at=clock.now()
        )
        if changed:
            _note_lifecycle(machine, Lifecycle.RETIRING, new)
    return True


def sync_policy(*, machine: Machine) -> bool:
    """Give the host the app's present policy if it has another. True if it was told."""
    policy = policy_of(machine.environment.app)
    text = _policy_text(policy)
    if machine.policy_sent in ("", text):  # "" = the host is still to get the whole specification
        return False
    HostApi(machine.host.name).put_policy(machine.id.hex, policy)
    Machine.objects.filter(id=machine.id).update(policy_sent=text)
    return True


def reconcile(*, host: Host) -> None:
    """Compare what a host has with what control wants, and put both right.

    One machine at a time: what cannot be taken over of one, or is refused for one, keeps none of the others waiting.
    A host that cannot be reached ends it.
    """
    api = HostApi(host.name)
    rows = {
        m.id.hex: m
        for m in Machine.objects.select_related("environment__app", "release", "host")
        .filter(host=host)
        .exclude(lifecycle=Lifecycle.GONE.value)
    }
    reports = {str(r.machine_id): r for r in api.machines()}
    Host.objects.filter(id=host.id).update(seen_at=clock.now())
    for machine_id, report in reports.items():
        row = rows.get(machine_id) or queries.machine(machine_id)
        with _alone(host, machine_id):
            if row is None or row.lifecycle == Lifecycle.GONE:
                logger.warning("removing a machine nobody wants", host=host.name, machine=machine_id)
                api.delete_machine(machine_id)
            else:
                observe.take_report(row, report)
    for machine_id, row in rows.items():
        if machine_id in reports or row.lifecycle != Lifecycle.WANTED or not row.policy_sent:
            continue  # without `policy_sent` the host was never told: the deploy that declared it will
        fresh = Machine.objects.select_related("environment__app", "release", "host").get(id=row.id)
        if fresh.lifecycle != Lifecycle.WANTED:
            continue  # retired, and perhaps removed, while the host was being asked
        logger.warning("host lost a machine: sending it again", host=host.name, machine=machine_id)
        with _alone(host, machine_id):
            observe.take_lost(row, MachineState.STOPPED.value, "the host had lost it; started again from its release")
            start(machine=fresh)


@contextlib.contextmanager
def _alone(host: Host, machine_id: str) -> Iterator[None]:
    """What goes wrong with one machine is logged and left to the next reconcile."""
    try:
        yield
    except (HostRefused, WireError, DataError, OverflowError) as e:
        logger.warning("machine not reconciled", host=host.name, machine=machine_id, error=str(e))


def _policy_text(policy: Policy) -> str:
    return json.dumps(codec.to_json(policy), sort_keys=True)


def _note_lifecycle(machine: Machine, old: Lifecycle, new: Lifecycle) -> None:
    MachineTransition.objects.create(machine=machine, old=old.value, new=new.value, source="control", at=clock.now())


@contextlib.contextmanager
def _shown() -> Iterator[None]:
    """What a host refuses, or its silence, in the words of whoever asked for it."""
    try:
        yield
    except HostRefused as e:
        kind = Kind.CONFLICT if e.status in (404, 409) else Kind.UNAVAILABLE
        raise UserError(e.code, e.message, kind) from e
    except HostUnreachable as e:
        raise UserError("host:unreachable", "The host cannot be reached just now.", Kind.UNAVAILABLE) from e
