"""Benchmarks, printed as JSON lines: `python -m tests.bench wake`, and `deploy`, `density`, `soak`.

They drive a running box (`deploy/up`) through its public API, git and the edge, as a user would; `density` and `soak`
also look, as root, at what the box holds of the machine. Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import sys

from tests.bench import density, deploy, soak, wake
from tests.bench.box import Box, BoxDown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Figures of a box as JSON lines.")
    commands = parser.add_subparsers(dest="command", required=True)
    wake_parser = commands.add_parser("wake", help="first byte when running, paused, suspended; pause; suspend; storm")
    wake_parser.add_argument("--rounds", type=int, default=20, help="wakes measured per kind (default 20)")
    wake_parser.add_argument("--storm", type=int, default=20, help="apps woken at once (default 20; 0 leaves it out)")
    deploy_parser = commands.add_parser("deploy", help="push to live for each sample app, by phase")
    deploy_parser.add_argument("apps", nargs="*", help="sample apps of tests/apps (default: all that should deploy)")
    density_parser = commands.add_parser("density", help="processor time, memory and disk of many sleeping apps")
    density_parser.add_argument("--apps", type=int, default=100, help="how many (default 100; each is deployed first)")
    density_parser.add_argument("--window", type=float, default=60, help="seconds to look for (default 60)")
    soak_parser = commands.add_parser("soak", help="what many sleeps of one app leave behind")
    soak_parser.add_argument("--cycles", type=int, default=1000, help="pauses, suspends and wakes (default 1000)")
    options = parser.parse_args()
    try:
        box = Box.running()
    except BoxDown as e:
        print(f"bench: {e}", file=sys.stderr)
        return 1
    if options.command == "wake":
        wake.run(box, rounds=options.rounds, storm=options.storm)
    elif options.command == "density":
        density.run(box, apps=options.apps, window_s=options.window)
    elif options.command == "soak":
        soak.run(box, cycles=options.cycles)
    else:
        deploy.run(box, names=options.apps)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
