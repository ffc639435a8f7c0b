"""`spawn`: the one allowed maker of loose tasks.

asyncio keeps only weak references to tasks and swallows their exceptions until they are collected; a spawned task is
referenced until it ends, and whatever it raises is logged under its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_running: set[asyncio.Task[Any]] = set()


def spawn(coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Run `coro` in the background, referenced and named."""
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task failed", task=task.get_name(), exc_info=error)
