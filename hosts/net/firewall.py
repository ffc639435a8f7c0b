"""The two nftables rule sets: what a machine may reach, kept in its own namespace, and what its uplink may do in the
root namespace.

Rules are text made by pure functions and given to nft in one transaction, so there is never a moment without them. A
namespace drops by default: without an uplink nothing leaves it, with one only what is not in `CLOSED_NETWORKS`, and
with egress `allowlist` of that only what our own resolver has let out.
"""

from __future__ import annotations

import hashlib
import ipaddress
import subprocess

from hosts.net.addresses import (
    GATEWAY_ADDRESS,
    GUEST_ADDRESS,
    TAP,
    UPLINK,
    check_instance,
    table_name,
    uplink_prefix,
)
from hosts.net.links import UPLINK_NETWORK
from hosts.wire.allowlist import AllowedName
from hosts.wire.spec import Egress

NFT = "/usr/sbin/nft"
NFT_TIMEOUT_S = 10.0  # one change of the rules

INSIDE_TABLE = "burrow"
ALLOWED_SET = "allowed"
ALLOWED_MAX = 4096  # addresses and ports at a time; more leases than that are not given

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


def rules_inside(nameservers: tuple[str, ...], egress: Egress = Egress.NONE, mark: int = 0, elements: str = "") -> str:
    """The rules of a machine's namespace. They stand before any uplink does.

    With `allowlist`, what goes out must be in the set `allowed`, which the resolver fills, or belong to a flow that
    was let out under these very rules: `mark` names them. So a flow outlives the address's time in the set, but not
    a change of the list that no longer has it.
    """
    servers = ", ".join([GATEWAY_ADDRESS, *_version_4(nameservers)])
    dns = f'iifname "{TAP}" ip daddr {{ {servers} }} meta l4proto {{ tcp, udp }} th dport 53'
    closed = f"ip daddr {{ {', '.join(CLOSED_NETWORKS)} }} reject with icmp type admin-prohibited"
    back, asked, redirected, allowed = "ct state established,related accept", "reject", "", ""
    match egress:
        case Egress.NONE:
            outward = "reject with icmp type admin-prohibited"
        case Egress.OPEN:
            outward = f"{_nameserver_rule(nameservers)}\n    {closed}\n    accept"
            if first := _version_4(nameservers)[:1]:
                redirected = (
                    f'iifname "{TAP}" ip daddr {GATEWAY_ADDRESS} meta l4proto {{ tcp, udp }} th dport 53 '
                    f"dnat ip to {first[0]}"
                )
        case Egress.ALLOWLIST:
            asked, redirected = "accept", f"{dns} redirect"
            allowed = f"""set {ALLOWED_SET} {{
    type ipv4_addr . inet_service; flags timeout; size {ALLOWED_MAX};
    {elements}
  }}"""
            back = f"""ct state established ct mark {mark} accept
    ct state established ip saddr . tcp sport @{ALLOWED_SET} ct mark set {mark} accept
    ct state related ct mark {mark} accept"""
            outward = f"""{closed}
    ct state established ct mark {mark} accept
    ip daddr . tcp dport @{ALLOWED_SET} ct mark set {mark} accept
    reject with icmp type admin-prohibited"""
    back = "\n    ".join(f'iifname "{UPLINK}" oifname "{TAP}" {line.strip()}' for line in back.splitlines())
    return f"""
table inet {INSIDE_TABLE}
delete table inet {INSIDE_TABLE}
table inet {INSIDE_TABLE} {{
  {allowed}
  chain input {{
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    iifname "{TAP}" ip saddr {GUEST_ADDRESS} ct state established,related accept
    iifname "{TAP}" ip saddr {GUEST_ADDRESS} ip daddr {GATEWAY_ADDRESS} meta l4proto {{ tcp, udp }} th dport 53 {asked}
  }}
  chain output {{
    type filter hook output priority filter; policy drop;
    oifname "lo" accept
    oifname "{TAP}" ip daddr {GUEST_ADDRESS} accept
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    {back}
    iifname "{TAP}" oifname "{UPLINK}" ip saddr {GUEST_ADDRESS} jump outward
  }}
  chain outward {{
    {outward}
  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    {redirected}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{UPLINK}" masquerade
  }}
}}
"""


def mark_of(nameservers: tuple[str, ...], allow: tuple[AllowedName, ...]) -> int:
    """What marks the flows let out under this list: the same after a restart of the agent, another for another list."""
    text = rules_inside(nameservers, Egress.ALLOWLIST) + repr(allow)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) | 1  # 0 is what no rule has marked


def stands_inside(mark: int) -> bool:
    """Whether the rules of exactly this list are in force in the present namespace (blocking)."""
    done = _nft(f"list chain inet {INSIDE_TABLE} outward\n")
    return done.returncode == 0 and f"ct mark set 0x{mark:08x}" in done.stdout


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
    done = _nft(rules)
    if done.returncode != 0:
        raise FirewallError(f"nft: {done.stderr.strip()}")


def _nft(commands: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [NFT, "-f", "-"], input=commands, capture_output=True, text=True, timeout=NFT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise FirewallError(f"nft: {e}") from None


def _version_4(nameservers: tuple[str, ...]) -> list[str]:
    return [server for server in nameservers if ipaddress.ip_address(server).version == 4]


def _nameserver_rule(nameservers: tuple[str, ...]) -> str:
    """DNS to the operator's own servers, wherever they stand; IPv6 ones cannot be reached, machines have no IPv6."""
    servers = _version_4(nameservers)
    if not servers:
        return ""
    return f"ip daddr {{ {', '.join(servers)} }} meta l4proto {{ tcp, udp }} th dport 53 accept"
