"""The box's command line; the scripts in deploy/ call it."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from pathlib import Path

from deploy.box import packages, programs, settings, virtualenv
from deploy.box.down import down
from deploy.box.instance import Instance
from deploy.box.say import Problem, Say
from deploy.box.supervision import ENVIRONMENT, Supervisor
from deploy.box.traces import traces
from deploy.box.up import up

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="deploy", description="One Burrow box, for this checkout.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="bring the box up; run again, it changes only what is not as it should be")
    down_parser = commands.add_parser("down", help="stop everything")
    down_parser.add_argument("--purge", action="store_true", help="remove the data and the system user as well")
    for name, text in (("ctl", "the supervisor's command line"), ("manage", "manage.py with the box's settings")):
        commands.add_parser(name, help=text, add_help=False)
    commands.add_parser("prepare-tests", help="install what deploy/test needs")
    commands.add_parser("traces", help="list what Burrow has on this machine")
    options, rest = parser.parse_known_args()
    if rest and options.command not in {"ctl", "manage"}:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half done is undone by its `finally`
    try:
        if os.geteuid() != 0:
            raise Problem(f"deploy/{options.command} must run as root (try: sudo deploy/{options.command})")
        match options.command:
            case "up":
                up(ROOT, Say())
            case "down":
                down(ROOT, Say(), purge=options.purge)
            case "prepare-tests":
                prepare_tests(Say())
            case "traces":
                print("\n".join(traces()))
            case "ctl":
                ctl(rest)
            case "manage":
                manage(rest)
    except Problem as e:
        print(f"burrow: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("burrow: interrupted; run deploy/up again to go on, or deploy/down to stop everything", file=sys.stderr)
        return 130
    return 0


def prepare_tests(say: Say) -> None:
    """Debian's packages and the virtual environment, the tests' own included."""
    packages.check_system(Path("/etc/os-release").read_text(encoding="utf-8"), platform.machine())
    lists = (ROOT / "deploy/apt.txt", ROOT / "deploy/apt-test.txt")
    packages.ensure([name for path in lists for name in packages.listed(path)], say)
    locks = [ROOT / "deploy/requirements.lock", ROOT / "deploy/requirements-test.lock"]
    virtualenv.ensure(ROOT / ".venv", locks, say)


def ctl(arguments: list[str]) -> None:
    """Become supervisorctl."""
    instance = Instance.of(ROOT)
    supervisor = Supervisor(instance)
    if not supervisor.config.exists():
        raise Problem("there is no box in this checkout yet: run deploy/up")
    if not supervisor.pid():
        raise Problem("the box of this checkout is down: run deploy/up")
    argv = [str(instance.python), "-m", "supervisor.supervisorctl", "-c", str(supervisor.config), *arguments]
    os.execve(argv[0], argv, dict(ENVIRONMENT))


def manage(arguments: list[str]) -> None:
    """Become manage.py, as the services' user."""
    instance = Instance.of(ROOT)
    ports = instance.ports()
    if ports is None:
        raise Problem("there is no box in this checkout yet: run deploy/up")
    argv = programs.as_user(
        instance, (str(instance.place / ".venv/bin/python"), str(instance.place / "manage.py"), *arguments)
    )
    os.execve(argv[0], argv, settings.control(instance, ports) | {"TERM": os.environ.get("TERM", "dumb")})


if __name__ == "__main__":
    sys.exit(main())
