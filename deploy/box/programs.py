"""The services of a box and the supervisor's configuration for them. Pure: text in, text out.

The supervisor restarts what dies, keeps and turns over the logs, and on `update` restarts exactly the programs whose
section changed; each section carries a fingerprint of the code and settings behind it, so `deploy/up` need not decide
that itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.box.instance import Instance
from deploy.box.ports import LOOPBACK, Ports
from deploy.box.say import Problem

LOG_BYTES = 10 * 1024 * 1024
LOG_FILES_KEPT = 3
PLAIN = re.compile(r"[A-Za-z0-9 _.,:/+@=~{}<>()\[\]*?!&|-]*")
RETRIES = 1_000_000  # the supervisor must not give up: what a service waits for may come back tomorrow
WEB_THREADS = 48  # a push holds one for as long as its build takes
WEB_GRACE_S = 30
WORKER_THREADS = 16


@dataclass(frozen=True, slots=True)
class Program:
    """One supervised process."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    priority: int  # lower starts earlier and stops later
    fingerprint: str  # changes when the program must be restarted
    stop_signal: str = "TERM"
    stop_wait_s: int = 20
    whole_group: bool = True  # stop the children as well
    folder: Path = field(default_factory=lambda: Path("/"))


def web(instance: Instance, ports: Ports) -> tuple[str, ...]:
    """gunicorn: threads, because git pushes and followers of logs each hold one for minutes."""
    return (
        str(instance.place / ".venv/bin/python"), "-m", "gunicorn", "control.wsgi:application",
        "--bind", f"{LOOPBACK}:{ports.web}", "--bind", f"unix:{instance.place / 'var/run/web.sock'}",
        "--worker-class", "gthread", "--workers", "1", "--threads", str(WEB_THREADS),
        "--timeout", "120", "--graceful-timeout", str(WEB_GRACE_S), "--no-control-socket",
        "--forwarder-headers=",  # no one may name SCRIPT_NAME or PATH_INFO: every client comes from a trusted loopback
        "--worker-tmp-dir", "/dev/shm",  # noqa: S108 - its heartbeat file must not wait for a disk
    )  # fmt: skip


def celery(instance: Instance, *arguments: str) -> tuple[str, ...]:
    """The worker, or beat."""
    return (str(instance.place / ".venv/bin/python"), "-m", "celery", "-A", "control.worker", *arguments)


def worker(instance: Instance) -> tuple[str, ...]:
    """The tasks wait for hosts and builders far more than they compute: threads."""
    return celery(
        instance, "worker", "--pool", "threads", "--concurrency", str(WORKER_THREADS), "--loglevel", "WARNING",
        "--without-gossip", "--without-mingle",
    )  # fmt: skip


def beat(instance: Instance) -> tuple[str, ...]:
    """Its schedule file and pid file stay out of the code."""
    schedule = instance.place / "var/run/beat-schedule"
    return celery(instance, "beat", "--schedule", str(schedule), "--pidfile=", "--loglevel", "WARNING")


def as_user(instance: Instance, argv: tuple[str, ...], *, user: str = "") -> tuple[str, ...]:
    """The command as an unprivileged user, control's unless named, with the checkout at `Instance.place` (enter.sh)."""
    enter = instance.root / "deploy/box/enter.sh"
    return ("/bin/sh", str(enter), user or instance.user, str(instance.root), str(instance.place), *argv)


def configuration(instance: Instance, programs: list[Program]) -> str:
    """The text of supervisord.conf."""
    run, log = instance.run, instance.var / "log"
    parts = [
        _section(
            "supervisord",
            {
                "logfile": log / "supervisord.log", "logfile_maxbytes": LOG_BYTES, "logfile_backups": LOG_FILES_KEPT,
                "pidfile": run / "supervisord.pid", "user": "root", "umask": "022", "directory": "/",
                "childlogdir": log, "minfds": 8192, "strip_ansi": "true",
            },
        ),
        _section("unix_http_server", {"file": run / "supervisor.sock", "chmod": "0700"}),
        _section(
            "rpcinterface:supervisor",
            {"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"},
        ),
        _section("supervisorctl", {"serverurl": f"unix://{run / 'supervisor.sock'}"}),
    ]  # fmt: skip
    parts += [_program(instance, program) for program in programs]
    return "\n".join(parts)


def _program(instance: Instance, program: Program) -> str:
    group = "true" if program.whole_group else "false"
    environment = {**program.environment, "RESTART_WHEN_CHANGED": program.fingerprint}
    return _section(
        f"program:{program.name}",
        {
            "command": " ".join(_word(a) for a in program.argv),
            "environment": ",".join(f'{name}="{_plain(value)}"' for name, value in sorted(environment.items())),
            "directory": _plain(str(program.folder)),
            "priority": program.priority,
            # Started by deploy/up in its order (the database is migrated before web runs), restarted by the supervisor.
            "autostart": "false", "autorestart": "true", "startsecs": 1, "startretries": RETRIES,
            "stopsignal": program.stop_signal, "stopwaitsecs": program.stop_wait_s,
            "stopasgroup": group, "killasgroup": group,
            "stdout_logfile": _plain(str(instance.var / "log" / f"{program.name}.log")),
            "stdout_logfile_maxbytes": LOG_BYTES, "stdout_logfile_backups": LOG_FILES_KEPT, "redirect_stderr": "true",
        },
    )  # fmt: skip


def _section(name: str, values: Mapping[str, object]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def _plain(text: str) -> str:
    """The text as it is; a Problem where the supervisor's parser would read something else (%, quotes, comments)."""
    if not PLAIN.fullmatch(text):
        raise Problem(f"{text!r} holds a character that cannot be written to the supervisor's configuration")
    return text


def _word(text: str) -> str:
    """One word of a command, for the supervisor's shell-like splitting."""
    return _plain(text) if text and " " not in text else f'"{_plain(text)}"'
