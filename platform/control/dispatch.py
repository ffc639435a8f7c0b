"""Sends Celery tasks after the commit, and never lets a broken broker break a request.

The rows a task works on are committed before it is sent; if Redis cannot be reached the task is not sent and the next
sweep finds the rows.
"""

from __future__ import annotations

from celery import current_app
from django.db import transaction
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from control import log

logger = log.get(__name__)


def send(task: str, *args: str, countdown_s: float = 0) -> None:
    """Send the task of that name once the present transaction commits (at once where there is none).

    By name, because services send the tasks that call them.
    """
    transaction.on_commit(lambda: _send(task, args, countdown_s))


def _send(task: str, args: tuple[str, ...], countdown_s: float) -> None:
    try:
        current_app.send_task(task, args=args, countdown=countdown_s or None, retry=False)
    except (KombuError, RedisError, OSError) as e:
        logger.warning("task not sent; a sweep will", task=task, args=args, error=str(e))
