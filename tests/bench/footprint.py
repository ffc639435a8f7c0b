"""What a box holds of this machine at one instant: processor time, memory, descriptors, namespaces, files.

Read from /proc and /sys as root, and told apart from everybody else's by the instance id, as `deploy/down` does it.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from deploy.box.instance import Instance
from deploy.box.reclaim import is_machine, is_service
from hosts.net import namespaces
from hosts.net.addresses import UPLINK, namespace_prefix

SETTLED_S = 3.0  # the disk is as it stays when it did not change for this long
SETTLE_LIMIT_S = 120.0
REST_LOOKS = 10
POLL_S = 0.5
BLOCK_BYTES = 512  # the unit of st_blocks
PROC = Path("/proc")
AGENT = "host agent"
NAMES = {"hosts": AGENT, "tunnel": "edge", "control.wsgi:application": "web", "beat": "beat", "worker": "worker"}


@dataclass(frozen=True, slots=True)
class Held:
    """What must be the same after any number of sleeps; a number of each."""

    processes: int
    descriptors: int  # of the host agent
    threads: int  # of the host agent
    namespaces: int
    taps: int
    links: int
    cgroups: int
    mounts: int
    files: int  # on the machines' volume

    def since(self, before: Held) -> dict[str, int]:
        """How much more of each there is than before."""
        return {field.name: getattr(self, field.name) - getattr(before, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Footprint:
    """One box."""

    instance: Instance

    @property
    def machines(self) -> Path:
        """The volume of the machines' files."""
        return self.instance.var / "host"

    def held(self) -> Held:
        """Everything that is counted."""
        agent = self.agent()
        names = [name for name in namespaces.names(namespace_prefix(self.instance.id)) if namespaces.exists(name)]
        return Held(
            processes=len(self.processes()),
            descriptors=len(list((agent / "fd").iterdir())),
            threads=len(list((agent / "task").iterdir())),
            namespaces=len(names),
            taps=sum(_taps(name) for name in names),
            links=len(list(Path("/sys/class/net").glob(f"bw{self.instance.id}*"))),
            cgroups=sum(1 for p in Path("/sys/fs/cgroup").glob(f"**/burrow-{self.instance.id}/**") if p.is_dir()),
            mounts=len((agent / "mounts").read_text().splitlines()),
            files=sum(len(names) for _, _, names in os.walk(self.machines)),
        )

    def held_at_rest(self) -> Held:
        """The same, the least of each in a few seconds: what background work opens for a moment is no leak."""
        seen = []
        for _ in range(REST_LOOKS):
            seen.append(self.held())
            time.sleep(POLL_S)
        return Held(*(min(getattr(one, field.name) for one in seen) for field in fields(Held)))

    def agent(self) -> Path:
        """The host agent's folder in /proc."""
        (found,) = [pid for pid, name in self.processes().items() if name == AGENT]
        return PROC / str(found)

    def processes(self) -> dict[int, str]:
        """Process id -> what it is."""
        pids = [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]
        ours = [pid for pid in pids if is_service(self.instance, pid) or is_machine(self.instance, pid)]
        return {pid: name for pid in ours if pid != os.getpid() and (name := _name(pid))}

    def cpu_s(self) -> dict[str, float]:
        """Processor time so far by kind of process, that of ended children included."""
        found: defaultdict[str, float] = defaultdict(float)
        for pid, name in self.processes().items():
            found[name] += _cpu_s(pid)
        return dict(found)

    def memory_mib(self) -> dict[str, float]:
        """Resident memory by kind of process; what several share is divided among them (PSS)."""
        found: Counter[str] = Counter()
        for pid, name in self.processes().items():
            found[name] += _pss_kib(pid)
        return {name: round(kib / 1024, 1) for name, kib in found.most_common()}

    def agent_memory_kib(self) -> int:
        """The host agent's own."""
        return _pss_kib(int(self.agent().name))

    def disk_bytes(self) -> int:
        """What is used of the machines' volume; blocks that files share count once."""
        found = os.statvfs(self.machines)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def settled_disk_bytes(self) -> int:
        """The same, once the work in the background is done: holes are made after a machine fell asleep."""
        limit = time.monotonic() + SETTLE_LIMIT_S
        since, seen = time.monotonic(), self.disk_bytes()
        while time.monotonic() - since < SETTLED_S and time.monotonic() < limit:
            time.sleep(POLL_S)
            if (now := self.disk_bytes()) != seen:
                since, seen = time.monotonic(), now
        return seen

    def machine_folders(self, app: str) -> Iterator[Path]:
        """Where the files of an app's machines lie."""
        for spec in (self.machines / "machines").glob("*/spec.json"):
            if f'"app":"{app}"' in spec.read_text(encoding="utf-8"):
                yield spec.parent


def allocated_bytes(path: Path) -> int:
    """What a file occupies by itself; 0 where there is none."""
    try:
        return path.stat().st_blocks * BLOCK_BYTES
    except FileNotFoundError:
        return 0


def _name(pid: int) -> str:
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    known = [NAMES[word] for word in words if word in NAMES and "python" in words[0]]
    return known[-1] if known else re.sub(r"[^a-z-].*", "", Path(words[0]).name)


def _cpu_s(pid: int) -> float:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")


def _pss_kib(pid: int) -> int:
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", (PROC / str(pid) / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _taps(namespace: str) -> int:
    """How many links there are beside the loopback and the uplink: of an intact machine one, its tap."""
    opened = namespaces.open_namespace(namespace)
    try:
        names = namespaces.inside(opened, lambda: [name for _, name in socket.if_nameindex()])
    finally:
        os.close(opened)
    return len(set(names) - {"lo", UPLINK})
