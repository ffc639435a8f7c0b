"""Stands in QEMU's place in a jail and tries what a VMM that a guest broke out of would try; says how each try ended.

It is a script for the bare Python that `test_jail.py` puts into the jail, so it imports nothing else. What to try is in
a file beside it. Its answer, on standard error, is a JSON object: the name of a try and "done", or the errno it got.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

TARGETS = "/usr/share/targets.json"
WAIT_S = 2.0

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIGCHLD = 17
_PTRACE_ATTACH = 16
_SYS = {
    "clone": 56, "ptrace": 101, "mount": 165, "unshare": 272, "setns": 308, "process_vm_readv": 310, "bpf": 321,
    "keyctl": 250, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435,
    "mknod": 133, "chroot": 161, "init_module": 175, "reboot": 169, "capset": 126,
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    with Path(TARGETS).open() as file:
        targets = json.load(file)
    found = {name: _outcome(attempt) for name, attempt in attempts(targets)}
    found["descriptors"] = ",".join(str(number) for number in range(1024) if _is_open(number))
    found["special files"] = ",".join(_special_files())
    sys.stderr.write(json.dumps(found) + "\n")
    return 0


def attempts(targets: dict[str, list[str]]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every try, by name; a name that begins with `own` is one that must succeed."""
    for path in targets["own"]:
        yield f"own {path}", partial(_open, path, os.O_RDWR)
    for path in targets["files"]:
        yield f"read {path}", partial(_open, path, os.O_RDONLY)
    for path in targets["images"]:
        yield f"write {path}", partial(_open, path, os.O_RDWR)
        yield f"chmod {path}", partial(Path(path).chmod, 0o600)
        yield f"unlink {path}", Path(path).unlink
    for path in targets["folders"]:
        yield f"make a file in {path}", partial(_open, f"{path}/new", os.O_RDWR | os.O_CREAT)
    for name in targets["sockets"]:
        yield f"connect {name}", partial(_connect_unix, name)
    for address in targets["addresses"]:
        yield f"connect {address}", partial(_connect_tcp, address)
    for number in map(int, targets["processes"]):
        yield f"signal {number}", partial(os.kill, number, 0)
        yield f"trace {number}", partial(_call, "ptrace", _PTRACE_ATTACH, number, 0, 0)
        yield f"peek into {number}", partial(_read_memory, number)
        yield f"hold {number}", partial(_call, "pidfd_open", number, 0)
    yield from _escalations()


def _escalations() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "become root", lambda: os.setresuid(0, 0, 0)
    yield "become root's group", lambda: os.setgroups([0])
    yield "become another machine", lambda: os.setresuid(os.getuid() + 1, -1, -1)
    yield (
        "take a capability",
        lambda: _call("capset", struct.pack("II", 0x20080522, 0), struct.pack("IIIIII", 1 << 21, 1 << 21, 0, 0, 0, 0)),
    )
    yield "unshare a user namespace", lambda: _call("unshare", _CLONE_NEWUSER)
    yield "unshare a network namespace", lambda: _call("unshare", _CLONE_NEWNET)
    yield "clone into a user namespace", lambda: _clone(_CLONE_NEWUSER | _SIGCHLD)
    yield "clone3", lambda: _call("clone3", 0, 0)
    yield "enter a namespace", lambda: _call("setns", 0, 0)
    yield "mount", lambda: _call("mount", b"none", b"/machine", b"tmpfs", 0, 0)
    yield "change the root", lambda: _call("chroot", b"/usr")
    yield "make a device", lambda: os.mknod("/machine/disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
    yield "load a module", lambda: _call("init_module", b"", 0, b"")
    yield "reboot", lambda: _call("reboot", 0, 0, 0, 0)
    yield "load BPF", lambda: _call("bpf", 0, 0, 0)
    yield "use keys", lambda: _call("keyctl", 0, -3, 1)
    yield "trace events", lambda: _call("perf_event_open", bytes(128), 0, -1, -1, 0)
    yield "handle faults", lambda: _call("userfaultfd", 1)
    yield "set up io_uring", lambda: _call("io_uring_setup", 4, bytes(120))
    yield "open a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    yield "open a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)
    yield "open a netlink socket", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    yield "raise a limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    yield "raise its priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)
    yield "run in real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    yield "lock memory", lambda: _checked(_libc.mlockall(3))
    yield "write past its memory", lambda: os.truncate("/machine/memory", 1 << 40)
    yield "start more tasks than it may", _start_many


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as e:
        return errno.errorcode.get(e.errno or 0, str(e))
    except ValueError as e:  # how `resource` says EPERM
        return str(e)
    return "done"


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def _call(name: str, *args: object) -> int:
    return _checked(_libc.syscall(_SYS[name], *args))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _clone(flags: int) -> None:
    if _call("clone", flags, 0, 0, 0, 0) == 0:
        os._exit(0)


def _read_memory(process: int) -> None:
    here = ctypes.create_string_buffer(16)
    local = struct.pack("PN", ctypes.addressof(here), 16)
    _call("process_vm_readv", process, local, 1, struct.pack("PN", 0x1000, 16), 1, 0)


def _connect_unix(name: str) -> None:
    """A name that begins with @ is in the abstract namespace."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + name[1:] if name.startswith("@") else name)


def _connect_tcp(address: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.settimeout(WAIT_S)
        sock.connect((host, int(port)))


def _start_many() -> None:
    """Forks that wait until all were tried; refused once the limit is met."""
    reading, writing = os.pipe()
    children = []
    try:
        for _ in range(300):
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            children.append(child)
    finally:
        os.close(writing)
        os.close(reading)
        for child in children:
            os.waitpid(child, 0)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _special_files() -> Iterator[str]:
    """Whatever in the jail has more rights than whoever runs it, or is a device."""
    for folder, _, names in os.walk("/"):
        for name in names:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if mode & (stat.S_ISUID | stat.S_ISGID) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                yield str(path)


if __name__ == "__main__":
    sys.exit(main())
