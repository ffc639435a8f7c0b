"""Verbs on routes: switch a hostname to a machine, publish the table to the edges; and put an app's live machine to
sleep or wake it.

Whoever changes a route holds the row of `RouteTable`, and whoever reads the table shares it, so a generation always
names one content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.conf import settings
from django.db import transaction

from control import clock, log
from control.applications import queries as applications
from control.applications import services as app_services
from control.applications.models import App, Environment
from control.dispatch import send
from control.errors import Kind, UserError
from control.machines import services as machines
from control.machines.models import Machine
from control.routes import queries
from control.routes.models import Edge, Route, RouteTable
from hosts.wire.commands import OutboundName, SleepDepth
from tunnel.client import EdgeClient, EdgeUnavailable
from tunnel.wire import NoWake, Refused, WireError
from tunnel.wire import Route as WireRoute

logger = log.get(__name__)

PUBLISH_TIMEOUT_S = 10.0
THE_TABLE = 1


def switch(*, environment: Environment, machine: Machine) -> int:
    """Make `machine` the live one; the new generation. Part of the caller's transaction. Again changes nothing."""
    table = _hold_table()
    route = Route.objects.filter(environment=environment).first()
    if route is not None and route.machine_id == machine.id:
        return table.generation
    if route is None:
        Route.objects.create(environment=environment, hostname=environment.hostname, machine=machine)
    else:
        route.machine, route.updated_at = machine, clock.now()
        route.save(update_fields=["machine", "updated_at"])
    return _next_generation(table)


def remove(*, environment: Environment) -> None:
    """Nothing is served for this environment any more. Part of the caller's transaction."""
    table = _hold_table()
    deleted, _ = Route.objects.filter(environment=environment).delete()
    if deleted:
        _next_generation(table)


def set_wake_policy(
    *,
    app: App,
    robots_wake: bool | None = None,
    no_wake_methods: Sequence[str] | None = None,
    no_wake_paths: Sequence[str] | None = None,
    waiting_page: bool | None = None,
) -> None:
    """Change which requests leave the app asleep, and what a browser sees while it wakes. Edges know in a moment."""
    if robots_wake is None and no_wake_methods is None and no_wake_paths is None and waiting_page is None:
        return  # a change of other settings must not wait for the table
    with transaction.atomic():
        table = _hold_table()
        changed = app_services.set_wake_policy(
            app=app,
            robots_wake=robots_wake,
            no_wake_methods=no_wake_methods,
            no_wake_paths=no_wake_paths,
            waiting_page=waiting_page,
        )
        if changed:
            _next_generation(table)
            send("routes.republish")


def publish() -> dict[str, int]:
    """Give every edge the present table. Answers which generation each reachable edge has now, ours or newer."""
    generation, routes = read_table()
    found = _publish(generation, routes)
    newest = max(found.values(), default=0)
    if newest > generation:
        # Only after a database was restored or made anew: the edges have seen numbers this one has not.
        with transaction.atomic():
            table = _hold_table()
            if table.generation <= newest:
                table.generation = newest
                _next_generation(table)
        generation, routes = read_table()
        found = _publish(generation, routes)
    return found


def edges() -> int:
    """How many edges there are to tell."""
    return len(settings.EDGE_CONTROL_SOCKETS)


def read_table() -> tuple[int, tuple[WireRoute, ...]]:
    """The generation and exactly its routes."""
    with transaction.atomic():
        table = _hold_table()
        rows = Route.objects.select_related("machine__host", "environment__app").order_by("hostname")
        routes = tuple(
            WireRoute(
                hostname=r.hostname,
                machine=r.machine_id.hex,
                host=r.machine.host.name,
                app=r.environment.app.slug,
                may_wake=r.may_wake,
                no_wake=_no_wake(r.environment.app),
                waiting_page=r.environment.app.waiting_page,
            )
            for r in rows
        )
        return table.generation, routes


def sleep_app(*, app: App, to: SleepDepth = SleepDepth.PAUSED) -> str:
    """Put the app's live machine to sleep; its state once the host has done it."""
    return machines.sleep(machine=_live_machine(app), to=to)


def wake_app(*, app: App) -> str:
    """Wake the app's live machine; its state once it runs."""
    return machines.wake(machine=_live_machine(app))


def outbound(*, app: App) -> tuple[OutboundName, ...]:
    """The names the app's live machine asked for, newest first; none before the first release."""
    machine = queries.live_machine(applications.production(app))
    return machines.outbound(machine=machine) if machine is not None else ()


def _live_machine(app: App) -> Machine:
    machine = queries.live_machine(applications.production(app))
    if machine is None:
        raise UserError("app:empty", f"{app.slug} has no release yet: push one first.", Kind.CONFLICT)
    return machine


def _no_wake(app: App) -> NoWake:
    return NoWake(not app.robots_wake, tuple(app.no_wake_methods), tuple(app.no_wake_paths))


def _hold_table() -> RouteTable:
    table = RouteTable.objects.select_for_update().filter(id=THE_TABLE).first()
    if table is None:
        RouteTable.objects.get_or_create(id=THE_TABLE, defaults={"generation": clock.to_ms(clock.now())})
        table = RouteTable.objects.select_for_update().get(id=THE_TABLE)
    return table


def _next_generation(table: RouteTable) -> int:
    table.generation = max(table.generation + 1, clock.to_ms(clock.now()))
    table.save(update_fields=["generation"])
    return table.generation


def _publish(generation: int, routes: Iterable[WireRoute]) -> dict[str, int]:
    """Each edge by itself, so that one that is stuck or refuses does not keep the table from the others."""
    found: dict[str, int] = {}
    for socket in settings.EDGE_CONTROL_SOCKETS:
        try:
            found |= EdgeClient([socket]).publish_routes(generation, routes, timeout_s=PUBLISH_TIMEOUT_S)
        except (EdgeUnavailable, Refused, WireError) as e:
            logger.warning("edge not told its routes", edge=socket, error=str(e))
            continue
        Edge.objects.update_or_create(socket=socket, defaults={"generation": found[socket], "seen_at": clock.now()})
    return found
