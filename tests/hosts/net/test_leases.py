"""What nft is told of each answer, and what is left when the list changes."""

from __future__ import annotations

import pytest

from hosts.net.leases import Leases
from hosts.wire.allowlist import AllowedName

ADDRESS = "198.51.100.1"


def test_an_answer_is_told_once_and_again_before_it_would_end() -> None:
    leases = Leases()
    first = leases.grant("a.example", (443, 80), (ADDRESS,), 5, now=1000)
    assert f"add element inet burrow allowed {{ {ADDRESS} . 443 timeout 90s, {ADDRESS} . 80 timeout 90s }}" in first
    assert leases.grant("a.example", (443, 80), (ADDRESS,), 5, now=1060) == ""
    again = leases.grant("a.example", (443, 80), (ADDRESS,), 5, now=1080)
    assert again.index("delete") < again.rindex("add"), "an element that is there would keep its old end"
    assert leases.until((ADDRESS, 443)) == 1170


def test_a_name_that_leaves_the_list_takes_only_its_own_along() -> None:
    leases = Leases()
    leases.grant("a.example", (443,), (ADDRESS, "198.51.100.2"), 300, now=1000)
    leases.grant("b.example", (443,), (ADDRESS,), 300, now=1000)
    assert leases.keep((AllowedName("b.example"),), now=1030) == f"elements = {{ {ADDRESS} . 443 timeout 300s }}"
    assert leases.keep((AllowedName("b.example", (80,)),), now=1030) == "", "its port is no longer allowed"
    leases.grant("b.example", (80,), (ADDRESS,), 300, now=1030)
    assert leases.keep((AllowedName("b.example", (80,)),), now=2000) == "", "over"


def test_there_is_room_for_so_many() -> None:
    leases = Leases()
    for block in range(16):
        leases.grant("a.example", (443,), tuple(f"198.51.{block}.{n}" for n in range(256)), 300, now=0)
    with pytest.raises(ValueError, match="more than 4096"):
        leases.grant("a.example", (443,), ("203.0.113.1",), 300, now=0)
    leases.grant("a.example", (443,), ("203.0.113.1",), 300, now=1000)


def test_what_nft_was_not_told_does_not_count() -> None:
    leases = Leases()
    leases.grant("a.example", (443,), (ADDRESS,), 300, now=0)
    leases.revoke("a.example")
    assert leases.grant("a.example", (443,), (ADDRESS,), 300, now=0) != ""
