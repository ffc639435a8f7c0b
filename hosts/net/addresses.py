"""The fixed addresses every machine sees, and the names and numbers that follow from an instance and a slot.

A guest has the same address in every namespace, so a snapshot resumes in any slot. Everything visible outside a
namespace carries the instance id, so two checkouts on one machine never meet.
"""

from __future__ import annotations

import re

GUEST_ADDRESS = "172.31.255.2"
GATEWAY_ADDRESS = "172.31.255.1"
PREFIX_LENGTH = 30
GUEST_MAC = "02:bf:00:00:00:02"
GATEWAY_MAC = "02:bf:00:00:00:01"
TAP = "tap0"
UPLINK = "up0"  # inside the namespace; its other end is `uplink_name`

MAX_SLOTS = 10_000  # four digits keep an uplink's name within the kernel's 15 characters
_UID_BASE = 700_000_000
_UID_INSTANCES = 100_000

_INSTANCE = re.compile(r"[0-9a-f]{6}")


def check_instance(instance: str) -> str:
    """The instance id itself, or ValueError: it goes into names of kernel objects."""
    if not _INSTANCE.fullmatch(instance):
        raise ValueError(f"instance id {instance!r} is not six lower-case hex digits")
    return instance


def check_slot(slot: int) -> int:
    """The slot itself, or ValueError."""
    if not 0 <= slot < MAX_SLOTS:
        raise ValueError(f"slot {slot} is not in 0..{MAX_SLOTS - 1}")
    return slot


def machine_uid(instance: str, slot: int) -> int:
    """The unprivileged uid and gid the VMM of this slot runs as; no passwd entry is needed."""
    return _UID_BASE + (int(check_instance(instance), 16) % _UID_INSTANCES) * MAX_SLOTS + check_slot(slot)


def namespace_prefix(instance: str) -> str:
    """What the names of all namespaces of an instance begin with."""
    return f"bw{check_instance(instance)}-"


def namespace_name(instance: str, slot: int) -> str:
    """The network namespace of a slot."""
    return f"{namespace_prefix(instance)}{check_slot(slot)}"


def uplink_prefix(instance: str) -> str:
    """What the names of all root-side uplinks of an instance begin with."""
    return f"bw{check_instance(instance)}u"


def uplink_name(instance: str, slot: int) -> str:
    """The root-side end of a slot's veth pair."""
    return f"{uplink_prefix(instance)}{check_slot(slot)}"


def table_name(instance: str) -> str:
    """The instance's nftables table in the root namespace."""
    return f"burrow_{check_instance(instance)}"


def slot_of(name: str, prefix: str) -> int | None:
    """The slot in a name made above, or None if it is someone else's."""
    digits = name.removeprefix(prefix)
    if digits == name or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)
