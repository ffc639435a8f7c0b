"""What Burrow boxes and tests have on this machine right now, one line each: `deploy/test` compares before and after.

Only things that carry Burrow's names or users are listed, of every instance.
"""

from __future__ import annotations

import pwd
import re
import subprocess
from pathlib import Path

from deploy.box.instance import INSTANCES_OF_UIDS, UID_RANGE_START, UIDS_PER_INSTANCE

COMMAND_TIMEOUT_S = 30
MACHINE_UIDS = range(UID_RANGE_START, UID_RANGE_START + INSTANCES_OF_UIDS * UIDS_PER_INSTANCE)


def traces() -> list[str]:
    """All of it, in words."""
    found = [f"network namespace {p.name}" for p in Path("/run/netns").glob("bw*")]
    found += [f"link {p.name}" for p in Path("/sys/class/net").glob("bw*")]
    tables = subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    ).stdout
    found += [f"firewall {line}" for line in tables.splitlines() if " burrow_" in line]
    found += [f"control group {p}" for p in Path("/sys/fs/cgroup").glob("**/burrow-*") if p.is_dir()]
    found += [
        f"user {entry.pw_name}"
        for entry in pwd.getpwall()
        if re.fullmatch(r"burrow-[0-9a-f]{6}(-edge)?", entry.pw_name)
    ]
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    found += [f"mount {line.split()[1]}" for line in mounts.splitlines() if "burrow" in line.split()[1]]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        if (file := backing.read_text(encoding="utf-8").strip()).endswith("/machines.xfs"):
            found.append(f"loop device over {file}")
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and (text := _describe(process)):
            found.append(text)
    return sorted(found)


def _describe(process: Path) -> str:
    """A machine's process, or one that a box or a test started; empty for anybody else's."""
    try:
        uid = process.stat().st_uid
        command = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""
    if uid in MACHINE_UIDS or re.search(r"/bwt-\w+/|/run/burrow-|/burrow-e2e-", command):
        return f"process {process.name} of user {uid}: {command[:100]}"
    return ""
