"""`python -m tunnel`: one edge worker, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import structlog
import uvloop

from tunnel.config import LIMITS, ConfigError, EdgeConfig, edge_config
from tunnel.dial.table import Row, answer, rows
from tunnel.edge.server import running

EX_CONFIG = 78
USAGE = """usage: python -m tunnel [--help | --limits]

One edge worker, until SIGTERM or SIGINT. Its settings come from the environment, those named BURROW_ below among them;
deploy/env describes each. --limits prints the table as Markdown."""


def limits() -> list[Row]:
    """Every limit of an edge, and of whoever speaks to one."""
    settings = ("tunnel.edge.limits", "Limits", {name: variable for name, (variable, _, _) in LIMITS.items()})
    packages = ("tunnel.edge", "tunnel.proto", "tunnel.wire", "tunnel.client")
    return [row for package in packages for row in rows(package, settings=settings)]


def main() -> int:
    """Run an edge with the settings of this process's environment."""
    if sys.argv[1:]:
        return answer(sys.argv[1:], USAGE, limits)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
    )
    try:
        config = edge_config(os.environ)
    except ConfigError as e:
        sys.stderr.write(f"edge: {e}\n")
        return EX_CONFIG
    try:
        uvloop.run(_serve(config))
    except OSError as e:
        sys.stderr.write(f"edge: {e}\n")
        return 1
    return 0


async def _serve(config: EdgeConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    async with running(config):
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
