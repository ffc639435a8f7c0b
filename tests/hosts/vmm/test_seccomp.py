"""The filter, run as the kernel runs it. That the kernel takes it, every QEMU shows (test_qemu.py, test_jail.py)."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from hosts.vmm.seccomp import Call, program

X86_64, I386 = 0xC000003E, 0x40000003
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
READ, SOCKET, CLONE, CLONE3 = 0, 41, 56, 435
# CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID and CHILD_CLEARTID: a thread of the C library
THREAD = 0x3D0F00


def verdict(call: int, argument: int = 0, *, architecture: int = X86_64) -> int:
    data = struct.pack("=IIQQ", call, architecture, 0, argument)
    code = [struct.unpack_from("=HBBI", program(), at) for at in range(0, len(program()), 8)]
    at = value = 0
    while True:
        kind, yes, no, operand = code[at]
        at += 1
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x15:
                at += yes if value == operand else no
            case 0x35:
                at += yes if value >= operand else no
            case 0x45:
                at += yes if value & operand else no
            case _:
                return int(operand)


@pytest.mark.parametrize("call", list(Call))
def test_each_call_on_the_list_is_refused(call: Call) -> None:
    assert verdict(call) == REFUSE | errno.EPERM


def test_what_qemu_lives_on_is_allowed() -> None:
    ppoll, futex, io_submit = 271, 202, 209
    assert {verdict(call) for call in (READ, ppoll, futex, io_submit)} == {ALLOW}
    assert verdict(CLONE, THREAD) == ALLOW
    assert verdict(SOCKET, socket.AF_UNIX) == ALLOW


def test_namespaces_and_the_network_are_refused_by_their_arguments() -> None:
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(CLONE, THREAD | flag) == REFUSE | errno.EPERM
    assert verdict(CLONE3) == REFUSE | errno.ENOSYS
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK):
        assert verdict(SOCKET, family) == REFUSE | errno.EPERM


def test_another_convention_of_calling_the_kernel_ends_the_process() -> None:
    assert verdict(READ, architecture=I386) == KILL
    assert verdict(READ | 0x40000000) == KILL
