"""Waits until the whole box works: not until its processes exist, but until each answers what it is there for."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Callable

from deploy.box import hostapi, programs, settings
from deploy.box.instance import Instance
from deploy.box.ports import LOOPBACK, Ports
from deploy.box.say import Problem, Say
from deploy.box.supervision import Supervisor

PROBE_TIMEOUT_S = 5
INSPECT_TIMEOUT_S = 30
STEADY_S = 5
POLL_S = 0.2
DYING_LIMIT_S = 20  # a program that the supervisor keeps restarting will not come right by waiting
LIMIT_S = 120  # the host agent's first start boots a guest to see which accelerator works
LOG_LINES_SHOWN = 15


def answers(port: int, path: str, *, host: str, status: int) -> bool:
    """HTTP on loopback gives this status."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status == status
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def host_answers(instance: Instance) -> bool:
    """Edge, link, stream and host agent work together."""
    return accelerator(instance) != ""


def accelerator(instance: Instance) -> str:
    """What the host agent runs machines with, kvm or tcg; empty while it does not answer."""
    try:
        return str(hostapi.request(instance, "GET", "/v1/health", timeout_s=PROBE_TIMEOUT_S)["accelerator"])
    except hostapi.HostSilent:
        return ""


def worker_answers(instance: Instance, ports: Ports) -> bool:
    """A message through Redis comes back."""
    argv = programs.as_user(instance, programs.celery(instance, "inspect", "ping", "--timeout", "2"))
    env = settings.control(instance, ports)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=INSPECT_TIMEOUT_S, check=False)
    return done.returncode == 0 and "pong" in done.stdout


def wait_healthy(ports: Ports, supervisor: Supervisor, say: Say) -> None:
    """Return when every service answers; a Problem names the one that does not, with the end of its log."""
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("web", lambda: answers(ports.web, "/healthz", host=LOOPBACK, status=200)),
        ("edge", lambda: answers(ports.edge, "/", host="no-such-app.localhost", status=404)),
        ("host", lambda: host_answers(supervisor.instance)),
        ("worker", lambda: worker_answers(supervisor.instance, ports)),
        ("beat", lambda: supervisor.runs_since_s("beat") >= STEADY_S),  # it answers nobody; what is broken dies at once
    ]
    for name, check in checks:
        wait(name, check, supervisor, say)


def wait(name: str, check: Callable[[], bool], supervisor: Supervisor, say: Say) -> None:
    """Wait for one service."""
    instance, started, seen_well = supervisor.instance, time.monotonic(), time.monotonic()
    while not check():
        now = time.monotonic()
        if now - seen_well > DYING_LIMIT_S / 4 and supervisor.states().get(name) == "RUNNING":
            seen_well = now
        if now - started > LIMIT_S or now - seen_well > DYING_LIMIT_S:
            log = instance.var / "log" / f"{name}.log"
            if log.exists():
                for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]:
                    say.line(f"    | {line}")
            raise Problem(f"{name} does not answer after {now - started:.0f} s; its log: {log}")
        time.sleep(POLL_S)
