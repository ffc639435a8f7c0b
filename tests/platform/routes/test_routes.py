"""The route table: numbered, whole, and the same on every edge in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.test import override_settings

from control import clock
from control.machines.models import Machine
from control.routes import queries, services, tasks
from control.routes.models import Edge, RouteTable
from tests.platform import rows
from tests.platform.fakehost import FakeEdge, running_edge
from tunnel.wire import NoWake

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine() -> Machine:
    return rows.machine(rows.app())


def test_a_switch_counts_the_generation_up_once(machine: Machine) -> None:
    first = services.switch(environment=machine.environment, machine=machine)
    assert services.switch(environment=machine.environment, machine=machine) == first
    other = rows.machine(machine.environment.app)
    assert services.switch(environment=machine.environment, machine=other) > first
    assert queries.live_machine(machine.environment) == other


def test_generations_are_not_older_than_the_clock(machine: Machine) -> None:
    before = clock.to_ms(clock.now())
    assert services.switch(environment=machine.environment, machine=machine) >= before


def test_an_edge_that_comes_back_empty_is_told_again(edge: FakeEdge, machine: Machine) -> None:
    generation = services.switch(environment=machine.environment, machine=machine)
    tasks.republish()
    assert edge.machine_of(machine.environment.hostname) == machine.id.hex
    edge.table = edge.table.__class__(0, ())
    tasks.republish()
    assert edge.table.generation == generation
    assert Edge.objects.get().generation == generation


def test_an_edge_from_before_a_new_database_takes_the_table_all_the_same(edge: FakeEdge, machine: Machine) -> None:
    ahead = clock.to_ms(clock.now()) + 1_000_000
    edge.table = edge.table.__class__(ahead, ())
    services.switch(environment=machine.environment, machine=machine)
    services.publish()
    assert edge.table.generation > ahead
    assert edge.machine_of(machine.environment.hostname) == machine.id.hex
    assert RouteTable.objects.get().generation == edge.table.generation


def test_one_edge_that_is_away_does_not_keep_the_table_from_another(edge: FakeEdge, machine: Machine) -> None:
    services.switch(environment=machine.environment, machine=machine)
    gone = str(Path(settings.EDGE_CONTROL_SOCKETS[0]).with_name("gone.sock"))
    second = Path(settings.EDGE_CONTROL_SOCKETS[0]).with_name("edge2.sock")
    with running_edge(second) as other, override_settings(EDGE_CONTROL_SOCKETS=(gone, str(edge.path), str(second))):
        found = services.publish()
        assert set(found) == {str(edge.path), str(second)}
        assert other.table == edge.table


def test_a_removed_route_is_gone_from_the_edges(edge: FakeEdge, machine: Machine) -> None:
    services.switch(environment=machine.environment, machine=machine)
    services.publish()
    services.remove(environment=machine.environment)
    services.publish()
    assert edge.machine_of(machine.environment.hostname) is None


def test_several_apps_are_read_with_two_queries(django_assert_num_queries: object) -> None:
    owner = rows.user()
    apps = [rows.app(owner) for _ in range(5)]
    for app in apps[:3]:
        machine = rows.machine(app)
        services.switch(environment=machine.environment, machine=machine)
    with django_assert_num_queries(2):  # type: ignore[operator]
        views = queries.app_views(apps)
    assert [v.state for v in views] == ["declared"] * 3 + ["empty"] * 2


def test_a_changed_wake_policy_is_a_new_table_and_reaches_the_edges(edge: FakeEdge, machine: Machine) -> None:
    app = machine.environment.app
    before = services.switch(environment=machine.environment, machine=machine)
    services.publish()
    assert edge.table.routes[0].no_wake == NoWake(robots=True)
    services.set_wake_policy(app=app, robots_wake=True, no_wake_methods=["HEAD"], no_wake_paths=["/health", "/a/*"])
    services.publish()
    assert edge.table.generation > before
    assert edge.table.routes[0].no_wake == NoWake(methods=("HEAD",), paths=("/a/*", "/health"))


def test_the_same_wake_policy_again_changes_no_table(machine: Machine) -> None:
    before = services.switch(environment=machine.environment, machine=machine)
    services.set_wake_policy(app=machine.environment.app, robots_wake=False, no_wake_methods=[], no_wake_paths=[])
    assert services.read_table()[0] == before


def test_a_waiting_page_is_switched_on_in_the_table_and_off_again(edge: FakeEdge, machine: Machine) -> None:
    app = machine.environment.app
    services.switch(environment=machine.environment, machine=machine)
    services.publish()
    assert not edge.table.routes[0].waiting_page
    for wanted in (True, False):
        services.set_wake_policy(app=app, waiting_page=wanted)
        services.publish()
        assert edge.table.routes[0].waiting_page is wanted
