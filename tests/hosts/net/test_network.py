"""Namespaces, taps and uplinks in the real kernel, and that none is left."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from hosts.net import namespaces
from hosts.net.addresses import TAP, machine_uid, namespace_name, uplink_name
from hosts.net.network import Network, NetworkError
from hosts.wire.spec import Egress

pytestmark = pytest.mark.root

OTHER_INSTANCE = "0f0f0f"


def inside(name: str, *command: str) -> str:
    return subprocess.run(["ip", "netns", "exec", name, *command], capture_output=True, text=True, check=True).stdout


def nft_tables() -> str:
    return subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def links_of(instance: str) -> list[str]:
    return [name for _, name in socket.if_nameindex() if name.startswith(f"bw{instance}")]


async def test_a_namespace_holds_one_tap_with_the_fixed_addresses(network: Network, instance: str) -> None:
    uid = machine_uid(instance, 3)
    namespace = await network.ensure(3, Egress.NONE, uid)
    assert namespace.name == namespace_name(instance, 3)
    addresses = inside(namespace.name, "ip", "-brief", "address")
    assert [line.split()[0] for line in addresses.splitlines()] == ["lo", TAP]
    assert "172.31.255.1/30" in addresses
    assert ":" not in addresses.replace("link/", ""), "no IPv6 address anywhere"
    assert "02:bf:00:00:00:02 PERMANENT" in inside(namespace.name, "ip", "neigh")
    assert f"user {uid}" in inside(namespace.name, "ip", "tuntap")
    assert inside(namespace.name, "ip", "route").strip().startswith("172.31.255.0/30"), "and no way out"
    assert "policy drop" in inside(namespace.name, "nft", "list", "ruleset")


async def test_making_it_again_changes_nothing_even_while_a_vmm_holds_the_tap(network: Network, instance: str) -> None:
    uid = machine_uid(instance, 3)
    first = await network.ensure(3, Egress.NONE, uid)
    tap = namespaces.open_tap(first.name, TAP)
    assert await network.ensure(3, Egress.OPEN, uid) is first
    assert await network.ensure(3, Egress.OPEN, uid) is first
    with pytest.raises(OSError, match="busy"):
        namespaces.open_tap(first.name, TAP)
    os.close(tap)
    os.close(namespaces.open_tap(first.name, TAP))


async def test_a_half_made_namespace_is_completed(network: Network, instance: str) -> None:
    namespaces.create(namespace_name(instance, 3))
    namespace = await network.ensure(3, Egress.NONE, machine_uid(instance, 3))
    assert TAP in inside(namespace.name, "ip", "-brief", "link")


async def test_the_way_out_comes_and_goes(network: Network, instance: str) -> None:
    namespace = await network.ensure(3, Egress.OPEN, machine_uid(instance, 3))
    assert links_of(instance) == [uplink_name(instance, 3)]
    assert "default via 198.1" in inside(namespace.name, "ip", "route")
    await network.set_egress(3, Egress.NONE)
    assert links_of(instance) == []
    await network.set_egress(3, Egress.NONE)
    await network.set_egress(3, Egress.OPEN)
    assert links_of(instance) == [uplink_name(instance, 3)]


async def test_removing_leaves_nothing_and_may_be_repeated(network: Network, instance: str) -> None:
    await network.ensure(3, Egress.OPEN, machine_uid(instance, 3))
    await network.remove(3)
    await network.remove(3)
    assert links_of(instance) == []
    assert namespaces.names(f"bw{instance}-") == []
    with pytest.raises(NetworkError):
        await network.set_egress(3, Egress.OPEN)


async def test_a_new_agent_reclaims_what_it_does_not_know(network: Network, instance: str) -> None:
    for slot in (3, 4, 5):
        await network.ensure(slot, Egress.OPEN, machine_uid(instance, slot))
    (namespaces.FOLDER / namespace_name(instance, 6)).touch()
    other = Network(OTHER_INSTANCE, ())
    foreign = await other.ensure(3, Egress.OPEN, machine_uid(OTHER_INSTANCE, 3))
    restarted = Network(instance, ())
    try:
        assert await restarted.reclaim(frozenset({4})) == {3, 5, 6}
        assert links_of(instance) == [uplink_name(instance, 4)]
        assert namespaces.names(f"bw{instance}-") == [namespace_name(instance, 4)]
        assert namespaces.exists(foreign.name), "another instance's is left alone"
        assert await restarted.reclaim(frozenset()) == {4}
        tables = nft_tables()
        assert instance not in tables
        assert OTHER_INSTANCE in tables
    finally:
        await other.reclaim(frozenset())
        other.close()
        restarted.close()


async def test_two_instances_never_share_an_uplink_address(instance: str) -> None:
    # Two ids whose first choice is the same pair of addresses.
    twins = [Network(OTHER_INSTANCE, ()), Network("0e0f10", ())]
    try:
        names = [
            (await twins[0].ensure(1, Egress.OPEN, 1_000_001)).name,
            (await twins[1].ensure(0, Egress.OPEN, 1_000_002)).name,
        ]
        routes = {inside(name, "ip", "route", "show", "default").split()[2] for name in names}
        assert len(routes) == 2
    finally:
        for twin in twins:
            await twin.reclaim(frozenset())
            twin.close()


async def test_connecting_to_a_guest_that_is_not_there_ends_in_time(network: Network, instance: str) -> None:
    namespace = await network.ensure(3, Egress.NONE, machine_uid(instance, 3))
    before = open_descriptors()
    with pytest.raises((TimeoutError, OSError)):
        await namespace.connect(80, 0.1)
    assert open_descriptors() == before


async def test_a_socket_from_inside_stays_inside(network: Network, instance: str) -> None:
    namespace = await network.ensure(3, Egress.NONE, machine_uid(instance, 3))

    def listen_inside() -> socket.socket:
        listener = socket.create_server(("172.31.255.1", 0))
        listener.setblocking(False)
        return listener

    with namespaces.inside(namespace.fd, listen_inside) as listener, socket.socket() as outside:
        outside.settimeout(0.2)
        with pytest.raises(OSError, match=r"unreachable|timed out"):
            outside.connect(listener.getsockname())
