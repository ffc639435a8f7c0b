"""The system calls that nothing in a jail may make, as the program bubblewrap hands to the kernel.

It lies under QEMU's own filter, which comes later and knows QEMU better, and holds for what runs before that one is up.
What it takes away is the kernel's surface that a VMM never needs: user namespaces, mounts, other processes, the
network, keys, BPF and io_uring (QEMU does without). x86-64 only, like the machines.
"""

from __future__ import annotations

import errno
import socket
import struct
from enum import IntEnum

_ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
_X32 = 0x40000000  # numbers from here on are another calling convention of the same kernel

# Where struct seccomp_data keeps what a rule may look at.
_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_FIRST_ARGUMENT_AT = 16  # its lower half: no flag or family of ours lies in the upper

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_KILL = 0x80000000  # the whole process
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000  # with the errno in the lower half

# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. NEWTIME shares its bit with the signal that
# clone(2) sends, so it is left to clone3, which nobody gets.
_NEW_NAMESPACE = 0x7E020000


class Call(IntEnum):
    """The refused system calls, by the numbers of x86-64."""

    PTRACE = 101
    SYSLOG = 103
    UNSHARE = 272
    SETNS = 308
    # mounts and roots
    PIVOT_ROOT = 155
    CHROOT = 161
    MOUNT = 165
    UMOUNT2 = 166
    OPEN_TREE = 428
    MOVE_MOUNT = 429
    FSOPEN = 430
    FSCONFIG = 431
    FSMOUNT = 432
    FSPICK = 433
    MOUNT_SETATTR = 442
    NAME_TO_HANDLE_AT = 303
    OPEN_BY_HANDLE_AT = 304
    # other processes
    PROCESS_VM_READV = 310
    PROCESS_VM_WRITEV = 311
    KCMP = 312
    PIDFD_GETFD = 438
    PROCESS_MADVISE = 440
    # the whole kernel
    MODIFY_LDT = 154
    ACCT = 163
    SETTIMEOFDAY = 164
    SWAPON = 167
    SWAPOFF = 168
    REBOOT = 169
    SETHOSTNAME = 170
    SETDOMAINNAME = 171
    IOPL = 172
    IOPERM = 173
    INIT_MODULE = 175
    DELETE_MODULE = 176
    QUOTACTL = 179
    ADJTIMEX = 159
    CLOCK_SETTIME = 227
    CLOCK_ADJTIME = 305
    KEXEC_LOAD = 246
    FINIT_MODULE = 313
    KEXEC_FILE_LOAD = 320
    # keys, tracing, and faults or input and output beside the usual way
    ADD_KEY = 248
    REQUEST_KEY = 249
    KEYCTL = 250
    PERF_EVENT_OPEN = 298
    FANOTIFY_INIT = 300
    BPF = 321
    USERFAULTFD = 323
    IO_URING_SETUP = 425
    IO_URING_ENTER = 426
    IO_URING_REGISTER = 427


_SOCKET = 41
_CLONE = 56
_CLONE3 = 435


def program() -> bytes:
    """The filter, in the kernel's form: an array of struct sock_filter."""
    refuse = _REFUSE | errno.EPERM
    code = [
        _op(_LOAD, _ARCHITECTURE_AT),
        _op(_EQUAL, _ARCHITECTURE, yes=1),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER_AT),
        _op(_AT_LEAST, _X32, no=1),
        _op(_RETURN, _KILL),
    ]
    for call in Call:
        code += [_op(_EQUAL, call, no=1), _op(_RETURN, refuse)]
    # clone3 has its flags in memory, where no filter can look; without it the C library takes clone.
    code += [_op(_EQUAL, _CLONE3, no=1), _op(_RETURN, _REFUSE | errno.ENOSYS)]
    code += [_op(_EQUAL, _CLONE, no=4), _op(_LOAD, _FIRST_ARGUMENT_AT), _op(_ANY_BIT, _NEW_NAMESPACE, no=1)]
    code += [_op(_RETURN, refuse), _op(_RETURN, _ALLOW)]
    # QEMU is handed its tap and its sockets; not even its namespace's own loopback is for it.
    code += [_op(_EQUAL, _SOCKET, no=3), _op(_LOAD, _FIRST_ARGUMENT_AT), _op(_EQUAL, socket.AF_UNIX, yes=1)]
    code += [_op(_RETURN, refuse), _op(_RETURN, _ALLOW)]
    return b"".join(code)


def _op(code: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` are how many to skip."""
    return struct.pack("=HBBI", code, yes, no, operand)
