"""`deploy/down`: the machines go to sleep, everything stops, and nothing of the box is left but its files.

`--purge` removes those too, and the system user. It works from any state, after any crash, and twice.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from deploy.box import forwarding, hostapi, people, reclaim, volume
from deploy.box.instance import Instance
from deploy.box.say import Say
from deploy.box.supervision import Supervisor
from deploy.box.up import only_one

LIST_TIMEOUT_S = 5
SLEEP_TIMEOUT_S = 30
START_WAIT_S = 30  # the longest the agent lets anyone wait
IN_BETWEEN = frozenset({"booting", "resuming"})
WITH_MEMORY = IN_BETWEEN | {"running", "paused", "suspending"}


def down(root: Path, say: Say, *, purge: bool) -> None:
    """Stop the box."""
    instance = Instance.of(root)
    if instance.var.exists():
        with only_one(instance):
            _stop(instance, say, keep_memory=not purge)
    for leftover in reclaim.reclaim(instance):
        say.line(f"    removed {leftover}")
    shutil.rmtree(instance.run, ignore_errors=True)
    if forwarding.restore():
        say.line("    turned IPv4 forwarding off again, as it was found")
    if purge:
        people.remove_users(instance, say)
        shutil.rmtree(instance.var, ignore_errors=True)
        say.line("Burrow is down, and its data and system users are gone.")
        say.line("Kept: .venv, Debian's packages, and the image cache in /var/cache/burrow, which checkouts share.")
    else:
        say.line("Burrow is down. Apps that sleep wake where they were, after the next deploy/up.")


def _stop(instance: Instance, say: Say, *, keep_memory: bool) -> None:
    supervisor = Supervisor(instance)
    if not supervisor.pid():
        return
    # The edge goes before the machines sleep: nothing is in flight then, and no request wakes a machine again.
    with say.step("stopping web, worker, beat and edge"):
        supervisor.stop(["beat", "worker", "web", "edge"])
    if keep_memory:
        with say.step("putting the machines to sleep"):
            _suspend_machines(instance, say)
    with say.step("stopping host agent, Redis and Postgres"):
        supervisor.stop(["host", "redis", "postgres"])
        supervisor.shut_down()
    volume.detach(instance, say)


def _suspend_machines(instance: Instance, say: Say) -> None:
    """Best effort: what cannot sleep now is cold-booted after the next start, and says so."""
    try:
        machines = hostapi.request_directly(instance, "GET", "/v1/machines", timeout_s=LIST_TIMEOUT_S)["machines"]
    except hostapi.HostSilent as e:
        say.line(f"    the host agent does not answer ({e}): memory of running apps is not kept")
        return
    for machine in machines:
        if machine["state"] in WITH_MEMORY:
            try:
                _suspend(instance, machine["machine_id"], settled=machine["state"] not in IN_BETWEEN)
            except hostapi.HostSilent as e:
                say.line(f"    machine {machine['machine_id'][:8]} could not sleep: {e}")


def _suspend(instance: Instance, machine_id: str, *, settled: bool) -> None:
    path = f"/v1/machines/{machine_id}"
    if not settled:  # the agent answers once it has started, or failed to
        wait = f"{path}?wait_s={START_WAIT_S}"
        report = hostapi.request_directly(instance, "GET", wait, timeout_s=START_WAIT_S + LIST_TIMEOUT_S)
        if report["state"] not in WITH_MEMORY:
            return
    deep = {"to": "suspended"}
    hostapi.request_directly(instance, "POST", f"{path}/sleep", deep, timeout_s=SLEEP_TIMEOUT_S)
