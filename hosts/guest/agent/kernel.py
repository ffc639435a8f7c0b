"""What the agent asks of the guest's kernel: clock, random numbers, name, and the control group the app lives in.

Behind a small class so that tests run the rest of the agent on a developer's machine without stepping its clock.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time

RNDADDENTROPY = 0x40085203
RNDRESEEDCRNG = 0x5207
APP_UID = 1000
APP_GID = 1000
CGROUPS = "/sys/fs/cgroup"
# Kept for kernel and agent, so that an app that fills memory is killed and the agent lives to tell.
RESERVED_BYTES = 40 * 1024 * 1024  # of a machine's memory


class Kernel:
    """The real one."""

    __slots__ = ("_random",)

    app_uid = APP_UID  # whose listening sockets are the app's

    def __init__(self) -> None:
        # Opened ahead: at a resume every system call counts.
        self._random = os.open("/dev/urandom", os.O_RDWR | os.O_CLOEXEC)

    def set_clock(self, clock_ms: int) -> None:
        """Step the wall clock."""
        time.clock_settime_ns(time.CLOCK_REALTIME, clock_ms * 1_000_000)

    def add_entropy(self, entropy: bytes) -> None:
        """Mix in fresh random bytes, credited, and make every later /dev/urandom read depend on them."""
        pool = struct.pack("ii", len(entropy) * 8, len(entropy)) + entropy
        fcntl.ioctl(self._random, RNDADDENTROPY, pool)
        fcntl.ioctl(self._random, RNDRESEEDCRNG)

    def set_identity(self, hostname: str, nameservers: list[str]) -> None:
        """Name the machine and tell it where names are resolved."""
        socket.sethostname(hostname)
        _replace("/etc/hostname", hostname + "\n")
        _replace("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {hostname}\n::1 localhost ip6-localhost ip6-loopback\n")
        _replace("/etc/resolv.conf", "".join(f"nameserver {n}\n" for n in nameservers))
        if not os.path.getsize("/etc/machine-id"):
            _replace("/etc/machine-id", os.urandom(16).hex() + "\n")

    def confine(self, group: str) -> None:
        """Make a control group for processes that must leave memory to the agent."""
        path = f"{CGROUPS}/{group}"
        os.makedirs(path, exist_ok=True)
        limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") - RESERVED_BYTES
        _write(f"{path}/memory.max", str(limit))

    def join(self, group: str) -> None:
        """Move the calling process into a group (after fork)."""
        _write(f"{CGROUPS}/{group}/cgroup.procs", "0")

    def kill_group(self, group: str) -> None:
        """SIGKILL everything in a group; no such group means nothing to kill."""
        try:
            _write(f"{CGROUPS}/{group}/cgroup.kill", "1")
        except FileNotFoundError:
            pass

    def remove_group(self, group: str) -> None:
        """Forget an empty group; one whose processes are still dying stays, which costs a few kilobytes."""
        try:
            os.rmdir(f"{CGROUPS}/{group}")
        except OSError:
            pass

    def oom_kills(self, group: str) -> int:
        """How often the kernel killed something in a group for want of memory."""
        with open(f"{CGROUPS}/{group}/memory.events") as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def become_app(self) -> None:
        """Give up root for the app's user (after fork)."""
        _write("/proc/self/oom_score_adj", "0")
        os.setgroups([])
        os.setgid(APP_GID)
        os.setuid(APP_UID)

    def drop_caches(self) -> None:
        """Forget what can be read again from the disks: file contents, and names and inodes too."""
        _write("/proc/sys/vm/drop_caches", "3")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _replace(path: str, text: str) -> None:
    """Write a file whole or not at all, and only where it differs: every write grows the machine's own disk."""
    try:
        with open(path) as file:
            if file.read() == text:
                return
    except FileNotFoundError:
        pass
    temporary = path + ".burrow"
    _write(temporary, text)
    os.rename(temporary, path)
