"""Logs: one JSON object a line on stderr, from structlog and the standard library alike, with everything a terminal
could obey escaped by JSON.
"""

from __future__ import annotations

import logging
import sys

import structlog

SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def configure() -> None:
    """Set up both structlog and `logging`; safe to call again."""
    structlog.configure(
        processors=[*SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    # Ours only: pytest and gunicorn add handlers of their own, which stay.
    root.handlers = [h for h in root.handlers if not getattr(h, "burrow", False)]
    handler.burrow = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    # A line per request that failed, per beat and per task would hide the lines that say something.
    for noisy in ("httpx", "httpcore", "kombu", "amqp", "celery.beat", "celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("django.request").setLevel(logging.ERROR)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger for a module."""
    return structlog.stdlib.get_logger(name)
