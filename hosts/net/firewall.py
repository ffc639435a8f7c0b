"""The two nftables rule sets: what a machine may reach, kept in its own namespace, and what its uplink may do in the
root namespace.

Rules are text made by pure functions and given to nft in one transaction, so there is never a moment without them. A
namespace drops by default: without an uplink nothing leaves it, with one only what is not in `CLOSED_NETWORKS`.
"""

from __future__ import annotations

import ipaddress
import subprocess

from hosts.net.addresses import GUEST_ADDRESS, TAP, UPLINK, check_instance, table_name, uplink_prefix
from hosts.net.links import UPLINK_NETWORK

NFT = "/usr/sbin/nft"
NFT_TIMEOUT_S = 10.0

INSIDE_TABLE = "burrow"

# Private, shared, loopback, link-local (with the cloud metadata services), benchmark, multicast, reserved. Not the
# three documentation networks: they lead nowhere, and where they do it is the operator's doing.
CLOSED_NETWORKS = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
)


class FirewallError(Exception):
    """nft refused; the text is its own."""


def rules_inside(nameservers: tuple[str, ...]) -> str:
    """The rules of a machine's namespace. They stand before any uplink does."""
    return f"""
table inet {INSIDE_TABLE}
delete table inet {INSIDE_TABLE}
table inet {INSIDE_TABLE} {{
  chain input {{
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    iifname "{TAP}" ip saddr {GUEST_ADDRESS} ct state established,related accept
  }}
  chain output {{
    type filter hook output priority filter; policy drop;
    oifname "lo" accept
    oifname "{TAP}" ip daddr {GUEST_ADDRESS} accept
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    iifname "{UPLINK}" oifname "{TAP}" ct state established,related accept
    iifname "{TAP}" oifname "{UPLINK}" ip saddr {GUEST_ADDRESS} jump outward
  }}
  chain outward {{
    {_nameserver_rule(nameservers)}
    ip daddr {{ {", ".join(CLOSED_NETWORKS)} }} reject with icmp type admin-prohibited
    accept
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{UPLINK}" masquerade
  }}
}}
"""


def rules_outside(instance: str, nameservers: tuple[str, ...]) -> str:
    """The rules of the root namespace for all uplinks of an instance: masquerade, and the host itself is out of reach.

    The closed networks are dropped here once more, in case the rules inside were ever lost.
    """
    table, uplinks = table_name(instance), f'"{uplink_prefix(instance)}*"'
    return f"""
table inet {table}
delete table inet {table}
table inet {table} {{
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    iifname != {uplinks} accept
    {_nameserver_rule(nameservers)}
    drop
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
    iifname != {uplinks} accept
    {_nameserver_rule(nameservers)}
    ip daddr {{ {", ".join(CLOSED_NETWORKS)} }} drop
    meta nfproto ipv6 drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {UPLINK_NETWORK} oifname != {uplinks} masquerade
  }}
}}
"""


def no_rules_outside(instance: str) -> str:
    """Removes an instance's table from the root namespace; works where there is none, too."""
    table = table_name(check_instance(instance))
    return f"table inet {table}\ndelete table inet {table}\n"


def apply(rules: str) -> None:
    """Give rules to nft in the present namespace, all or nothing (blocking)."""
    try:
        done = subprocess.run(
            [NFT, "-f", "-"], input=rules, capture_output=True, text=True, timeout=NFT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise FirewallError(f"nft: {e}") from None
    if done.returncode != 0:
        raise FirewallError(f"nft: {done.stderr.strip()}")


def _nameserver_rule(nameservers: tuple[str, ...]) -> str:
    """DNS to the operator's own servers, wherever they stand; IPv6 ones cannot be reached, machines have no IPv6."""
    servers = [server for server in nameservers if ipaddress.ip_address(server).version == 4]
    if not servers:
        return ""
    return f"ip daddr {{ {', '.join(servers)} }} meta l4proto {{ tcp, udp }} th dport 53 accept"
