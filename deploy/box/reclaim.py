"""Ends and removes all that is left of this box: processes, namespaces, links, tables, groups, mounts.

Nothing is looked up in a record, which could be missing or old: what is ours is told by its own name, user or
environment, each of which carries the instance id. So it works after any crash, and never touches another box.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from deploy.box.instance import Instance

COMMAND_TIMEOUT_S = 30
END_TIMEOUT_S = 10
POLL_S = 0.05
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
NAMESPACES = Path("/run/netns")


def reclaim(instance: Instance) -> list[str]:
    """Leave nothing behind; what was found, in words."""
    found: list[str] = []
    found += end_processes(lambda pid: is_service(instance, pid))
    found += end_processes(lambda pid: is_machine(instance, pid))
    found += remove_namespaces(instance)
    found += remove_links(instance)
    found += remove_tables(instance)
    found += remove_cgroups(instance)
    found += remove_mounts(instance)
    return found


def end_processes(is_ours: Callable[[int], bool]) -> list[str]:
    """End these processes and wait until they are gone."""
    spared = _ourselves()
    asked: dict[int, str] = {}
    deadline = time.monotonic() + END_TIMEOUT_S
    while True:
        # Looked up anew each round: a process may start another one while it is being ended.
        alive = [pid for pid in _pids() if pid not in spared and is_ours(pid)]
        if not alive or time.monotonic() > deadline + END_TIMEOUT_S:
            break
        for pid in alive:
            number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
            if pid not in asked or number == signal.SIGKILL:
                asked[pid] = _command(pid)
                _signal(pid, number)
        time.sleep(POLL_S)
    return [f"process {pid} ({command})" for pid, command in asked.items()]


def is_service(instance: Instance, pid: int) -> bool:
    """One of the supervised programs: it runs as a user of ours, or was started with our settings."""
    return _uid(pid) in {
        _user_id(instance.user),
        _user_id(instance.edge_user),
    } or f"BURROW_INSTANCE={instance.id}" in _environment(pid)


def is_machine(instance: Instance, pid: int) -> bool:
    """A VMM or its jail: it runs as one of our machines' users, or sits in one of our control groups."""
    if _uid(pid) in instance.machine_uids:
        return True
    try:
        groups = (PROC / str(pid) / "cgroup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return any(part.startswith(f"burrow-{instance.id}") for part in re.split(r"[/\n]", groups))


def remove_namespaces(instance: Instance) -> list[str]:
    """The machines' network namespaces, their taps with them."""
    names = sorted(p.name for p in NAMESPACES.glob(f"bw{instance.id}-*"))
    for name in names:
        _run("ip", "netns", "delete", name)
    return [f"network namespace {name}" for name in names]


def remove_links(instance: Instance) -> list[str]:
    """Veth ends in the root namespace whose other end was gone already."""
    names = sorted(p.name for p in Path("/sys/class/net").glob(f"bw{instance.id}*"))
    for name in names:
        _run("ip", "link", "delete", name)
    return [f"link {name}" for name in names]


def remove_tables(instance: Instance) -> list[str]:
    """Firewall tables."""
    found = []
    for line in _run("nft", "list", "tables").splitlines():
        words = line.split()
        if len(words) == 3 and words[2].startswith(f"burrow_{instance.id}"):
            _run("nft", "delete", "table", words[1], words[2])
            found.append(f"firewall table {words[2]}")
    return found


def remove_cgroups(instance: Instance, top: Path = CGROUPS) -> list[str]:
    """Control groups, the innermost first: the kernel removes only empty ones."""
    found = []
    for pattern in (f"burrow-{instance.id}*", f"*/burrow-{instance.id}*"):
        for group in sorted(top.glob(pattern)):
            if group.is_symlink() or not group.is_dir():
                continue
            inner = sorted((p for p in group.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True)
            for path in (*inner, group):
                _rmdir(path)
            found.append(f"control group {group.relative_to(top)}")
    return found


def remove_mounts(instance: Instance) -> list[str]:
    """Mounts below var/ or our folder in /run, the innermost first."""
    found = []
    for line in (PROC / "self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        target = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split(" ")[1]))
        if instance.var in target.parents or instance.run in target.parents:
            found.append(target)
    for target in sorted(found, key=lambda p: len(p.parts), reverse=True):
        _run("umount", str(target))
        if target.is_mount():
            _run("umount", "--lazy", str(target))
    return [f"mount {target}" for target in found]


def _pids() -> Iterable[int]:
    return (int(p.name) for p in PROC.iterdir() if p.name.isdigit())


def _ourselves() -> set[int]:
    """This process and those it was started by: whoever asks must not end themselves."""
    found = set()
    pid = os.getpid()
    while pid > 1:
        found.add(pid)
        try:
            stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def _uid(pid: int) -> int:
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return -1


def _user_id(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return -2


def _environment(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _rmdir(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return  # not empty yet or gone already: the next reclaim finds it


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    return done.stdout
