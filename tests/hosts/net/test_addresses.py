from __future__ import annotations

import pytest

from hosts.net.addresses import MAX_SLOTS, machine_uid, namespace_name, namespace_prefix, slot_of, uplink_name


def test_names_fit_the_kernel_and_give_their_slot_back() -> None:
    name = uplink_name("abcdef", MAX_SLOTS - 1)
    assert len(name) <= 15
    assert slot_of(name, "bwabcdefu") == MAX_SLOTS - 1
    assert slot_of(namespace_name("abcdef", 7), namespace_prefix("abcdef")) == 7


@pytest.mark.parametrize("name", ["bwabcdef-", "bwabcdef-x", "bwabcdef-1x", "bwabcdee-1", "eth0", "bwabcdef-\u0661"])
def test_what_is_not_ours_has_no_slot(name: str) -> None:
    assert slot_of(name, namespace_prefix("abcdef")) is None


@pytest.mark.parametrize("instance", ["", "ABCDEF", "abcdefg", "abcde", "../../", "abcde\n"])
def test_an_instance_is_six_hex_digits(instance: str) -> None:
    with pytest.raises(ValueError, match="instance id"):
        namespace_name(instance, 1)


def test_no_two_slots_or_instances_share_a_uid() -> None:
    uids = {
        machine_uid(instance, slot) for instance in ("000000", "000001", "00ffff") for slot in (0, 1, MAX_SLOTS - 1)
    }
    assert len(uids) == 9
    assert max(machine_uid(f"{n:06x}", MAX_SLOTS - 1) for n in range(0, 1 << 24, 99_999)) < 1 << 31
    with pytest.raises(ValueError, match="slot"):
        machine_uid("000000", MAX_SLOTS)
