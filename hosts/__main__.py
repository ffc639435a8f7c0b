"""`python -m hosts`: the host agent as a process. SIGTERM stops serving; machines run on for the next agent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import structlog
import uvloop

from hosts.agent.start import running
from hosts.config import ConfigError, HostConfig
from tunnel.dial.table import Row, answer, rows

EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h: starting again will not help
USAGE = """usage: python -m hosts [--help | --limits]

The host agent, until SIGTERM or SIGINT; machines run on. Its settings come from the environment; deploy/env describes
each. --limits prints the table as Markdown."""


def limits() -> list[Row]:
    """Every limit of a host agent, of its machines, and of the tunnel's dialing side."""
    return [row for package in ("hosts", "tunnel.dial") for row in rows(package)]


def set_up_logs() -> None:
    """One JSON object a line on stdout, standard library loggers included."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per shipment is no news


async def serve(config: HostConfig) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    async with running(config):
        await stop.wait()


def main() -> int:
    """Parse the environment and run."""
    if sys.argv[1:]:
        return answer(sys.argv[1:], USAGE, limits)
    set_up_logs()
    try:
        config = HostConfig.from_env(os.environ)
    except ConfigError as e:
        structlog.get_logger("hosts").error("config.refused", error=str(e))
        return EXIT_CONFIG
    uvloop.run(serve(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
