"""Loose tasks: kept until they end, and heard when they fail."""

from __future__ import annotations

import asyncio
import gc

import structlog.testing

from tunnel.tasks import spawn


async def test_a_spawned_task_is_not_collected() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.set()

    spawn(work(), name="work")
    gc.collect()
    async with asyncio.timeout(2):
        await done.wait()


async def test_a_task_that_fails_is_logged_under_its_name() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with structlog.testing.capture_logs() as logs:
        task = spawn(fail(), name="doomed")
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert [(entry["event"], entry["task"]) for entry in logs] == [("task failed", "doomed")]


async def test_a_cancelled_task_is_not_an_error() -> None:
    with structlog.testing.capture_logs() as logs:
        task = spawn(asyncio.sleep(10), name="long")
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert logs == []
