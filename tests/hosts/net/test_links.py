from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from hosts.net import links, namespaces
from hosts.net.addresses import TAP, UPLINK, uplink_name, uplink_prefix

pytestmark = pytest.mark.root


@pytest.fixture
def inside(instance: str) -> Iterator[int]:
    name = f"bw{instance}-78"
    namespaces.create(name)
    fd = namespaces.open_namespace(name)
    yield fd
    links.delete_link(uplink_name(instance, 78))
    os.close(fd)
    namespaces.delete(name)


def names_inside(fd: int) -> set[str]:
    return namespaces.inside(fd, lambda: {name for _, name in socket.if_nameindex()})


def test_everything_may_be_done_twice(inside: int, instance: str) -> None:
    for _ in range(2):
        namespaces.inside(inside, lambda: links.set_up_inside(12345))
        outer, inner = links.add_uplink(uplink_name(instance, 78), inside, first_choice=3)
        namespaces.inside(inside, partial(links.use_uplink_inside, inner, outer))
    assert names_inside(inside) == {"lo", TAP, UPLINK}
    assert links.link_names(uplink_prefix(instance)) == {78: uplink_name(instance, 78)}
    for _ in range(2):
        links.delete_link(uplink_name(instance, 78))
    assert names_inside(inside) == {"lo", TAP}
    assert links.link_names(uplink_prefix(instance)) == {}


def test_an_address_in_use_is_passed_over(inside: int, instance: str) -> None:
    outer, _ = links.add_uplink(uplink_name(instance, 78), inside, first_choice=11)
    other = f"bw{instance}-79"
    namespaces.create(other)
    fd = namespaces.open_namespace(other)
    try:
        again, _ = links.add_uplink(uplink_name(instance, 79), fd, first_choice=11)
        assert again != outer
        last = 2**16 - 1
        assert links.add_uplink(uplink_name(instance, 79), fd, first_choice=last)[0] == again, "it has one already"
    finally:
        links.delete_link(uplink_name(instance, 79))
        os.close(fd)
        namespaces.delete(other)


def test_what_a_guest_sends_is_acknowledged_at_once(inside: int) -> None:
    namespaces.inside(inside, lambda: links.set_up_inside(12345))
    routes = namespaces.inside(
        inside, lambda: subprocess.run(["ip", "route"], capture_output=True, text=True, check=True)
    )
    assert any(TAP in line and "quickack 1" in line for line in routes.stdout.splitlines()), routes.stdout
