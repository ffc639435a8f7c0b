"""Debian packages: only what is missing is installed, and nothing that apt would start by itself gets started.

Two guards stand while apt runs and are taken down again, also if it fails: a policy-rc.d that forbids starting
services, and a drop-in that keeps Debian's Postgres package from making a system-wide cluster. A guard left by a killed
run is recognised.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.box.say import Problem, Say

UPDATE_TIMEOUT_S = 300
INSTALL_TIMEOUT_S = 1800
QUERY_TIMEOUT_S = 60
MARK = "# put here by Burrow's deploy/up for as long as apt runs"
POLICY = Path("/usr/sbin/policy-rc.d")
CREATECLUSTER = Path("/etc/postgresql-common/createcluster.d/burrow.conf")
EXECUTABLE = 0o755
SUPPORTED = {"12": "bookworm", "13": "trixie"}


def check_system(os_release: str, machine: str) -> None:
    """Debian 12 or 13 on x86-64, or a Problem."""
    fields = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    if fields.get("ID") != "debian" or fields.get("VERSION_ID") not in SUPPORTED:
        raise Problem(f"this is {fields.get('PRETTY_NAME', 'an unknown system')}: Burrow's box needs Debian 12 or 13")
    if machine != "x86_64":
        raise Problem(f"this is {machine}: Burrow's box needs x86-64 for now")


def listed(path: Path) -> list[str]:
    """The package names in a list file: one a line, # begins a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def missing(names: list[str]) -> list[str]:
    """Those that are not installed."""
    found = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", *names],
        capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False,
    ).stdout  # fmt: skip
    installed = {line.split()[1] for line in found.splitlines() if line.startswith("installed ")}
    return [name for name in names if name not in installed]


def ensure(names: list[str], say: Say) -> None:
    """Install what is missing of these packages."""
    wanted = missing(names)
    if not wanted:
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120"]
    with say.step("reading Debian's package lists"):
        say.run([*apt, "update"], failure="apt-get update failed", timeout_s=UPDATE_TIMEOUT_S, env=env)
    with say.step(f"installing {len(wanted)} Debian packages: {' '.join(wanted)}"), guards():
        say.run(
            [*apt, "install", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", *wanted],
            failure="apt-get install failed", timeout_s=INSTALL_TIMEOUT_S, env=env,
        )  # fmt: skip


@contextmanager
def guards(policy: Path = POLICY, createcluster: Path = CREATECLUSTER) -> Iterator[None]:
    """While this lasts, apt starts no service and Debian's Postgres makes no cluster."""
    policies_before = None
    if policy.exists() and MARK not in (text := policy.read_text(encoding="utf-8")):
        policies_before = (text, policy.stat().st_mode)
    folder_was_there = createcluster.parent.exists()
    try:
        policy.write_text(f"#!/bin/sh\n{MARK}\nexit 101\n", encoding="utf-8")
        policy.chmod(EXECUTABLE)
        createcluster.parent.mkdir(parents=True, exist_ok=True)
        createcluster.write_text(f"{MARK}\ncreate_main_cluster = false\n", encoding="utf-8")
        yield
    finally:
        createcluster.unlink(missing_ok=True)
        if not folder_was_there and createcluster.parent.exists() and not any(createcluster.parent.iterdir()):
            createcluster.parent.rmdir()
        if policies_before is None:
            policy.unlink(missing_ok=True)
        else:
            policy.write_text(policies_before[0], encoding="utf-8")
            policy.chmod(policies_before[1])
