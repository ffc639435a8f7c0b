"""Sends Celery tasks after the commit, and never lets a broken broker break a request.

The rows a task works on are committed before it is sent; if Redis cannot be reached the task is not sent and the next sweep finds the rows.
"""

from __future__ import annotations

from typing import Any

from celery import Task
from django.db import transaction
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from control import log

logger = log.get(__name__)


def send(task: Task[Any, Any], *args: str | int, countdown_s: float = 0) -> None:
    """Send `task(*args)` once the present transaction commits (at once where there is none)."""
    transaction.on_commit(lambda: _send(task, args, countdown_s))


def _send(task: Task[Any, Any], args: tuple[str | int, ...], countdown_s: float) -> None:
    try:
        task.apply_async(args=args, countdown=countdown_s or None, retry=False)
    except (KombuError, RedisError, OSError) as e:
        logger.warning("task not sent; a sweep will", task=task.name, args=args, error=str(e))
