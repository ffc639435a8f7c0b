"""Limits on one VMM's memory, CPU, number of tasks and disk traffic, with cgroup v2 or, where a host still has it, v1.

A machine's cgroup is made before its QEMU and removed after it, so it is also how QEMUs are found that nobody
remembers. The instance id is in every path.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hosts.vmm.protocol import VmmError

log = logging.getLogger(__name__)

CONTROLLERS = ("memory", "cpu", "pids", "io")
IO_FILES = ("io.", "blkio.")
V1_NAMES = {"blkio": "io"}  # where version 1 has another word for a controller
PERIOD_US = 100_000
REMOVE_TIMEOUT_S = 2.0  # a control group's last process may take to end
REMOVE_POLL_S = 0.005  # between looks


@dataclass(frozen=True, slots=True)
class Limits:
    """What one VMM may use."""

    memory_bytes: int
    cpus: float
    tasks: int
    devices: frozenset[str]  # disks its files lie on, as "major:minor"
    io_bytes_per_s: int  # of each device, and of reading and writing each
    io_operations_per_s: int


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """One mounted cgroup tree and the controllers of ours that live in it."""

    root: Path
    version: int
    controllers: tuple[str, ...]


class Cgroups:
    """The cgroups of one instance. Blocking, but quick."""

    def __init__(self, instance: str, hierarchies: tuple[_Hierarchy, ...]) -> None:
        self._parent = f"burrow-{instance}"
        self._hierarchies = hierarchies

    @classmethod
    def detect(cls, instance: str, mounts: Path = Path("/proc/self/mounts")) -> Cgroups:
        """Find where this host keeps each controller; a missing one is said once and done without."""
        hierarchies = tuple(one for one in _hierarchies(mounts.read_text()) if _usable(one))
        found = {controller for hierarchy in hierarchies for controller in hierarchy.controllers}
        for controller in CONTROLLERS:
            if controller not in found:
                log.warning("this host gives us no %s cgroup controller: machines run without that limit", controller)
        return cls(instance, hierarchies)

    def make(self, name: str, limits: Limits) -> None:
        """Make the cgroup of a machine, or set the limits of the one there is."""
        for hierarchy in self._hierarchies:
            path = hierarchy.root / self._parent / name
            try:
                try:
                    _make(hierarchy, path, limits)
                except FileNotFoundError:  # the last machine's end took the instance's level away in this instant
                    _make(hierarchy, path, limits)
            except OSError as e:
                raise VmmError(f"cgroup {path}: {e.strerror}") from None

    def admit(self, name: str, pid: int) -> None:
        """Put a process, and with it all it will start, under the limits."""
        for path in self._paths(name):
            (path / "cgroup.procs").write_text(str(pid))

    def pids(self, name: str) -> frozenset[int]:
        """The live processes under a machine's limits."""
        found: set[int] = set()
        for path in self._paths(name):
            try:
                found.update(int(line) for line in (path / "cgroup.procs").read_text().split())
            except OSError:
                continue  # removed by someone else meanwhile
        return frozenset(found)

    def names(self) -> frozenset[str]:
        """The machines that have a cgroup of this instance."""
        parents = [hierarchy.root / self._parent for hierarchy in self._hierarchies]
        return frozenset(
            path.name for parent in parents if parent.is_dir() for path in parent.iterdir() if path.is_dir()
        )

    def remove(self, name: str) -> None:
        """Remove a machine's cgroup, waiting a moment for its last process to be gone; idempotent."""
        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        for path in self._paths(name):
            while True:
                try:
                    path.rmdir()
                except FileNotFoundError:
                    break
                except OSError as e:
                    if time.monotonic() > deadline:
                        raise VmmError(f"cgroup {path} stays: {e.strerror}") from None
                    time.sleep(REMOVE_POLL_S)
                else:
                    break
        self.remove_parent()

    def remove_parent(self) -> None:
        """Remove the instance's own level if no machine is left in it."""
        for hierarchy in self._hierarchies:
            with suppress(OSError):
                (hierarchy.root / self._parent).rmdir()

    def _paths(self, name: str) -> list[Path]:
        return [hierarchy.root / self._parent / name for hierarchy in self._hierarchies]


def _hierarchies(mounts: str) -> tuple[_Hierarchy, ...]:
    """v2 wins for every controller it has; the rest is looked for in v1."""
    found: list[_Hierarchy] = []
    left = set(CONTROLLERS)
    lines = [line.split() for line in mounts.splitlines()]
    for _, path, kind, _options, *_ in lines:
        if kind == "cgroup2":
            offered = set((Path(path) / "cgroup.controllers").read_text().split())
            if here := left & offered:
                found.append(_Hierarchy(Path(path), 2, tuple(sorted(here))))
                left -= here
    for _, path, kind, options, *_ in lines:
        if kind == "cgroup" and (here := left & {V1_NAMES.get(option, option) for option in options.split(",")}):
            found.append(_Hierarchy(Path(path), 1, tuple(sorted(here))))
            left -= here
    return tuple(found)


def _make(hierarchy: _Hierarchy, path: Path, limits: Limits) -> None:
    path.parent.mkdir(exist_ok=True)
    if hierarchy.version == 2:
        for above in (hierarchy.root, path.parent):
            _enable(above, hierarchy.controllers)
    path.mkdir(exist_ok=True)
    for file, value in _settings(hierarchy, limits):
        try:
            with (path / file).open("a") as setting:  # one device a write, and each write is a setting of its own
                setting.write(value)
        except OSError as e:
            if not file.startswith(IO_FILES):
                raise
            _say_unlimited(value.split()[0], e.strerror or str(e))


@functools.cache
def _say_unlimited(device: str, why: str) -> None:
    """Once each: some drivers know no such limit, and that is no reason to run nothing on their disks."""
    log.warning("disk %s: the kernel takes no limit for it (%s); machines use it without one", device, why)


def _usable(hierarchy: _Hierarchy) -> bool:
    """Whether we may make groups here; in a container the tree is often read-only, or its root not ours to divide."""
    try:
        if hierarchy.version == 2:
            _enable(hierarchy.root, hierarchy.controllers)
        elif not os.access(hierarchy.root, os.W_OK):
            return False
    except OSError as e:
        log.warning("cgroups at %s cannot be used: %s", hierarchy.root, e.strerror)
        return False
    return True


def _enable(folder: Path, controllers: tuple[str, ...]) -> None:
    control = folder / "cgroup.subtree_control"
    missing = set(controllers) - set(control.read_text().split())
    if missing:
        control.write_text(" ".join(f"+{controller}" for controller in sorted(missing)))


def device_of(path: Path) -> str | None:
    """The disk a file lies on, as cgroups name it; None where no block device is behind the file system."""
    found = path.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(found)}:{os.minor(found)}")
    try:
        whole = device.resolve().parent if (device / "partition").exists() else device
        return (whole / "dev").read_text().strip()
    except FileNotFoundError:
        return None


def _settings(hierarchy: _Hierarchy, limits: Limits) -> list[tuple[str, str]]:
    quota_us = int(limits.cpus * PERIOD_US)
    size, count, devices = limits.io_bytes_per_s, limits.io_operations_per_s, sorted(limits.devices)
    if hierarchy.version == 2:
        every = {
            "memory": [("memory.max", str(limits.memory_bytes)), ("memory.oom.group", "1")],
            "cpu": [("cpu.max", f"{quota_us} {PERIOD_US}")],
            "pids": [("pids.max", str(limits.tasks))],
            "io": [("io.max", f"{one} rbps={size} wbps={size} riops={count} wiops={count}") for one in devices],
        }
    else:
        every = {
            "memory": [("memory.limit_in_bytes", str(limits.memory_bytes))],
            "cpu": [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota_us))],
            "pids": [("pids.max", str(limits.tasks))],
            # Version 1 sees reads, and writes that QEMU waits for; what the kernel writes back later is nobody's.
            "io": [
                (f"blkio.throttle.{way}_{unit}_device", f"{one} {most}")
                for one in devices
                for way in ("read", "write")
                for unit, most in (("bps", size), ("iops", count))
            ],
        }
    return [setting for controller in hierarchy.controllers for setting in every[controller]]
