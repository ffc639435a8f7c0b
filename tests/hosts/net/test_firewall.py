"""The text of the rules; what they do to packets is shown in test_egress.py."""

from __future__ import annotations

import subprocess

import pytest

from hosts.net import firewall
from hosts.wire.allowlist import AllowedName
from hosts.wire.spec import Egress


def test_rules_name_only_ipv4_nameservers() -> None:
    rules = firewall.rules_inside(("10.0.0.2", "fd00::2"), Egress.OPEN)
    assert "ip daddr { 10.0.0.2 } meta l4proto" in rules
    assert "fd00" not in rules
    assert "dnat" not in firewall.rules_inside(("fd00::2",), Egress.OPEN)


def test_a_name_that_is_no_address_never_becomes_a_rule() -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4"):
        firewall.rules_inside(("10.0.0.2 } accept; #",))


def test_the_closed_networks_are_closed_in_both_places() -> None:
    for rules in (
        firewall.rules_inside((), Egress.OPEN),
        firewall.rules_inside((), Egress.ALLOWLIST, 1),
        firewall.rules_outside("abcdef", ()),
    ):
        for network in firewall.CLOSED_NETWORKS:
            assert network in rules


def test_another_list_has_another_mark_and_the_same_one_the_same() -> None:
    lists: list[tuple[AllowedName, ...]] = [(), (AllowedName("a.example"),), (AllowedName("a.example", (443,)),)]
    marks = [firewall.mark_of((), allow) for allow in lists]
    assert len(set(marks)) == 3
    assert marks == [firewall.mark_of((), allow) for allow in lists]
    assert all(marks), "0 is what no rule has marked"


@pytest.mark.root
def test_nft_takes_both_and_takes_them_back(instance: str) -> None:
    firewall.apply(firewall.rules_outside(instance, ("10.0.0.2",)))
    firewall.apply(firewall.rules_outside(instance, ("10.0.0.3",)))
    listed = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    assert listed.count(f"table inet burrow_{instance} ") == 1
    assert "10.0.0.2" not in listed
    for _ in range(2):
        firewall.apply(firewall.no_rules_outside(instance))
    listed = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    assert instance not in listed


@pytest.mark.root
def test_what_nft_refuses_is_said() -> None:
    with pytest.raises(firewall.FirewallError, match="syntax error"):
        firewall.apply("no such rule")
