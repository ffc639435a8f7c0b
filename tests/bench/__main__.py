"""Benchmarks, printed as JSON lines: `python -m tests.bench wake`, `python -m tests.bench deploy`.

They drive a running box (`deploy/up`) through its public API, git and the edge, as a user would.
Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import sys

from tests.bench import deploy, wake
from tests.bench.box import Box, BoxDown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Figures of a box as JSON lines.")
    commands = parser.add_subparsers(dest="command", required=True)
    wake_parser = commands.add_parser("wake", help="first byte when running, paused, suspended; pause; suspend; storm")
    wake_parser.add_argument("--rounds", type=int, default=20, help="wakes measured per kind (default 20)")
    wake_parser.add_argument("--storm", type=int, default=20, help="apps woken at once (default 20; 0 leaves it out)")
    deploy_parser = commands.add_parser("deploy", help="push to live for each sample app, by phase")
    deploy_parser.add_argument("apps", nargs="*", help="sample apps of tests/apps (default: all that should deploy)")
    options = parser.parse_args()
    try:
        box = Box.running()
    except BoxDown as e:
        print(f"bench: {e}", file=sys.stderr)
        return 1
    if options.command == "wake":
        wake.run(box, rounds=options.rounds, storm=options.storm)
    else:
        deploy.run(box, names=options.apps)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
