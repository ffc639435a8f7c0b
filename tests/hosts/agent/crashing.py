"""kill -9 of an agent at a chosen step: before, or right after, something it does to disk, VMM, network or guest.

Every such call is a crash point. At the chosen one, and at every later one, `Killed` is raised instead: what the dead
agent still tries changes nothing, as little as a process that is gone.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.guest import FakeGuest
from tests.fakes.network import FakeNetwork
from tests.fakes.vmm import FakeVm, FakeVmm

POINTS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("fsync", "rename", "replace", "unlink")),
    (Path, ("rename", "replace", "unlink", "mkdir", "rmdir")),
    (shutil, ("rmtree",)),
    (FakeVmm, ("boot", "load")),
    (FakeVm, ("pause", "resume", "save", "kill")),
    (FakeGuest, ("hello", "start", "await_listening", "resume", "sync")),
    (FakeNetwork, ("ensure", "remove")),
)
END_TIMEOUT_S = 5.0


class Killed(BaseException):
    """The agent is dead. No `except Exception` of its own sees this."""


class Crash:
    """Counts crash points from `arm` on, and kills at the one asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self._at = -1
        self._armed = False
        self.dead = False
        for owner, names in POINTS:
            for name in names:
                monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name), f"{owner.__name__}.{name}"))

    def arm(self, at: int) -> None:
        """Die at crash point number `at` from now; -1 never does."""
        self.seen, self._at, self._armed, self.dead = [], at, True, False

    async def bury(self) -> None:
        """End what is left of the dead agent; what follows is its successor."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        async with asyncio.timeout(END_TIMEOUT_S):
            await asyncio.gather(*others, return_exceptions=True)
        self._armed = self.dead = False

    def _reach(self, name: str) -> None:
        if not self._armed:
            return
        if not self.dead:
            self.dead = len(self.seen) == self._at
            self.seen.append(name)
        if self.dead:
            raise Killed(name)

    def _wrapped(self, work: Callable[..., Any], name: str) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(work):

            @wraps(work)
            async def reached_async(*args: Any, **kwargs: Any) -> Any:
                self._reach(f"before {name}")
                result = await work(*args, **kwargs)
                self._reach(f"after {name}")
                return result

            return reached_async

        @wraps(work)
        def reached(*args: Any, **kwargs: Any) -> Any:
            self._reach(f"before {name}")
            result = work(*args, **kwargs)
            self._reach(f"after {name}")
            return result

        return reached
