"""Push to live for each sample app, by phase, as the deploy itself recorded it; and its bytes once it sleeps."""

from __future__ import annotations

import sys

from deploy.box.instance import Instance
from tests.bench.box import ROOT, Box, first_byte
from tests.bench.footprint import Footprint, allocated_bytes
from tests.bench.report import figure

APPS = ROOT / "tests/apps"
MIB = 1 << 20


def run(box: Box, *, names: list[str]) -> None:
    """Deploy each sample once, as an app of its own."""
    for name in names or sorted(p.name for p in APPS.iterdir() if p.is_dir() and not (p / "EXPECT_FAILURE").exists()):
        before = Footprint(Instance.of(ROOT)).settled_disk_bytes()
        with box.app(f"bench-{name}"[:40].rstrip("-")) as app:
            push = box.push(app["git_url"], APPS / name)
            if not push.ok:
                print(f"bench: {name} did not deploy:\n{push.output}", file=sys.stderr)
                continue
            figure(f"deploy.{name}.push_to_live", "s", [push.seconds])
            figure(f"deploy.{name}.first_byte", "ms", [first_byte(app["url"]) * 1000])
            deploys = box.call("GET", f"/apps/{app['name']}/deploys")
            newest = (deploys if isinstance(deploys, list) else deploys["items"])[0]
            for phase in newest.get("phases", []):
                figure(f"deploy.{name}.{phase['phase']}", "s", [phase["seconds"]])
            box.sleep(app["name"], "suspended")
            _asleep(name, app["name"], before)


def _asleep(name: str, app: str, before: int) -> None:
    """What the sleeping app occupies: its files each, and all of it on the volume, where files may share blocks."""
    footprint = Footprint(Instance.of(ROOT))
    whole = footprint.settled_disk_bytes() - before
    parts = {
        part: round(sum(allocated_bytes(machine / part) for machine in footprint.machine_folders(app)) / MIB, 1)
        for part in ("memory", "checkpoint/memory", "disk", "checkpoint/disk")
    }
    figure(f"deploy.{name}.asleep", "MiB", [whole / MIB], note="memory, checkpoint, disk and image", files=parts)
