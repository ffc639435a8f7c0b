"""What many sleeping apps cost: processor time, memory and disk of the whole box; then some are woken among them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import tempfile
import time
from pathlib import Path

from deploy.box.instance import Instance
from tests.bench.box import ROOT, Box, first_byte
from tests.bench.footprint import Footprint
from tests.bench.report import figure
from tests.bench.wake import STORM_APP

PUSHES_AT_ONCE = 2
WAKES = 10
REST_S = 10.0  # after the last app fell asleep: deploys leave work for the background
MIB = 1 << 20


def run(box: Box, *, apps: int, window_s: float) -> None:
    """Deploy that many apps, put all to sleep, and look at the box for a while."""
    footprint = Footprint(Instance.of(ROOT))
    before = footprint.settled_disk_bytes()
    idle(footprint, "density.before", window_s)
    with contextlib.ExitStack() as stack:
        urls = _asleep(box, stack, apps)
        if not urls:
            sys.exit("bench: no app deployed")
        disk = footprint.settled_disk_bytes() - before
        time.sleep(REST_S)
        idle(footprint, f"density.{len(urls)}_suspended", window_s)
        figure("density.disk_per_app", "MiB", [disk / MIB / len(urls)], note="memory, checkpoint, disk and image")
        woken = urls[:: max(1, len(urls) // WAKES)][:WAKES]
        figure("density.first_byte.one_of_them", "ms", [first_byte(url) * 1000 for url in woken])


def idle(footprint: Footprint, name: str, window_s: float) -> None:
    """Processor time in a window in which nobody asks for anything, and memory at its end."""
    began, cpu = time.monotonic(), footprint.cpu_s()
    time.sleep(window_s)
    minutes = (time.monotonic() - began) / 60
    used = {kind: round((now - cpu.get(kind, 0)) / minutes, 2) for kind, now in footprint.cpu_s().items()}
    memory = footprint.memory_mib()
    figure(f"{name}.cpu", "s/min", [sum(used.values())], by=used)
    figure(f"{name}.memory", "MiB", [sum(memory.values())], by=memory)


def _asleep(box: Box, stack: contextlib.ExitStack, apps: int) -> list[str]:
    """The URLs of the apps, all suspended. One that does not deploy is told of and left out."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for name, text in STORM_APP.items():
        (folder / name).write_text(text, encoding="utf-8")
    names = [f"bench-density-{number}" for number in range(apps)]
    made = [stack.enter_context(box.app(name, idle_period_s=3600, suspend_after_s=3600)) for name in names]

    def deploy(app: dict[str, str]) -> str:
        push = box.push(app["git_url"], folder)
        if not push.ok:
            print(f"bench: {app['name']} did not deploy:\n{push.output}", file=sys.stderr)
            return ""
        box.sleep(app["name"], "suspended")
        return app["url"]

    with concurrent.futures.ThreadPoolExecutor(PUSHES_AT_ONCE) as pool:
        return [url for url in pool.map(deploy, made) if url]
