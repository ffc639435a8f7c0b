"""`python -m tunnel`: one edge worker, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import structlog
import uvloop

from tunnel.config import ConfigError, EdgeConfig, edge_config
from tunnel.edge.server import running

EX_CONFIG = 78


def main() -> int:
    """Run an edge with the settings of this process's environment."""
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
