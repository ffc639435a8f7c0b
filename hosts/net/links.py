"""Links, addresses, routes and neighbours of a machine's namespace, by netlink. The only module that imports pyroute2.

Everything here is blocking and idempotent: what exists already is left as it is, so a half-made namespace is
completed by making it again. Functions named `..._inside` must run inside the namespace
(`hosts.net.namespaces.inside`).
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from hosts.net.addresses import (
    GATEWAY_ADDRESS,
    GATEWAY_MAC,
    GUEST_ADDRESS,
    GUEST_MAC,
    PREFIX_LENGTH,
    TAP,
    UPLINK,
    slot_of,
)
from hosts.net.namespaces import make_persistent_tap

# Point-to-point links between a namespace and the root namespace. The range set aside for benchmarks of network
# devices: no network a server stands in uses it, and it is never routed on the internet.
UPLINK_NETWORK = ipaddress.IPv4Network("198.18.0.0/15")
_UPLINKS = UPLINK_NETWORK.num_addresses // 2

_PERMANENT = 0x80  # NUD_PERMANENT
_DOWN = frozenset({errno.ENODEV, errno.ENOENT})


def set_up_inside(uid: int) -> None:
    """Loopback, the machine's tap with its fixed addresses, no IPv6, forwarding."""
    for file, value in (
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv6/conf/default/disable_ipv6", "1"),
        ("ipv4/ip_forward", "1"),
    ):
        path = Path("/proc/sys/net") / file
        if path.exists():  # a kernel without IPv6 has nothing to turn off
            path.write_text(value)
    with IPRoute() as netlink:
        netlink.link("set", index=_index(netlink, "lo"), state="up")
        if not netlink.link_lookup(ifname=TAP):
            make_persistent_tap(TAP, uid)
            netlink.link("set", index=_index(netlink, TAP), address=GATEWAY_MAC)
        tap = _index(netlink, TAP)
        with _unless_there():
            netlink.addr("add", index=tap, address=GATEWAY_ADDRESS, prefixlen=PREFIX_LENGTH)
        netlink.link("set", index=tap, state="up")
        # Acknowledge at once: a guest's server that writes head and body apart waits for it (Nagle), and a delayed one
        # made every answer take 50 ms instead of 6.
        netlink.route(
            "replace",
            dst=str(ipaddress.IPv4Interface(f"{GATEWAY_ADDRESS}/{PREFIX_LENGTH}").network),
            oif=tap,
            prefsrc=GATEWAY_ADDRESS,
            proto="kernel",
            scope="link",
            metrics={"quickack": 1},
        )
        netlink.neigh("replace", dst=GUEST_ADDRESS, lladdr=GUEST_MAC, ifindex=tap, state=_PERMANENT)


def add_uplink(name: str, namespace: int, first_choice: int) -> tuple[str, str]:
    """Make the veth pair between root and a namespace; its two addresses, root's first. Idempotent."""
    with IPRoute() as netlink:
        if not netlink.link_lookup(ifname=name):
            netlink.link("add", ifname=name, kind="veth", peer={"ifname": UPLINK, "net_ns_fd": namespace})
        index = _index(netlink, name)
        _no_ipv6(name)
        addresses = [str(a.get_attr("IFA_ADDRESS")) for a in netlink.get_addr(family=2, index=index)]
        if not addresses:
            addresses = [_free_address(netlink, first_choice)]
            netlink.addr("add", index=index, address=addresses[0], prefixlen=31)
        netlink.link("set", index=index, state="up")
    ours = ipaddress.IPv4Address(addresses[0])
    return str(ours), str(ours + 1)


def use_uplink_inside(address: str, gateway: str) -> None:
    """Give the inner end its address and make it the way out."""
    with IPRoute() as netlink:
        index = _index(netlink, UPLINK)
        with _unless_there():
            netlink.addr("add", index=index, address=address, prefixlen=31)
        netlink.link("set", index=index, state="up")
        netlink.route("replace", dst="default", gateway=gateway, oif=index)


def delete_link(name: str) -> None:
    """Delete a link of the present namespace, and with a veth its other end; nothing happens if there is none."""
    with IPRoute() as netlink:
        for index in netlink.link_lookup(ifname=name):
            try:
                netlink.link("del", index=index)
            except NetlinkError as e:
                if e.code not in _DOWN:
                    raise


def link_names(prefix: str) -> dict[int, str]:
    """Links of the present namespace that belong to a slot, by slot."""
    with IPRoute() as netlink:
        found = [str(link.get_attr("IFLA_IFNAME")) for link in netlink.get_links()]
    slots = ((slot_of(name, prefix), name) for name in found)
    return {slot: name for slot, name in slots if slot is not None}


def _free_address(netlink: Any, first_choice: int) -> str:
    """The first pair of addresses, from `first_choice` on, that no link here uses: another instance may be at work as
    well.
    """
    used = {str(address.get_attr("IFA_ADDRESS")) for address in netlink.get_addr(family=2)}
    for step in range(_UPLINKS):
        candidate = UPLINK_NETWORK[2 * ((first_choice + step) % _UPLINKS)]
        if str(candidate) not in used:
            return str(candidate)
    raise OSError(errno.EADDRNOTAVAIL, f"no free addresses in {UPLINK_NETWORK}")


def _index(netlink: Any, name: str) -> int:
    found = netlink.link_lookup(ifname=name)
    if not found:
        raise OSError(errno.ENODEV, f"no link {name}")
    return int(found[0])


def _no_ipv6(name: str) -> None:
    path = Path("/proc/sys/net/ipv6/conf") / name / "disable_ipv6"
    if path.exists():
        path.write_text("1")


@contextmanager
def _unless_there() -> Iterator[None]:
    try:
        yield
    except NetlinkError as e:
        if e.code != errno.EEXIST:
            raise
