"""Work that makes sense only while a VMM lives: it is abandoned the moment the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

from hosts.vmm.protocol import Vm

T = TypeVar("T")


class VmLost(Exception):  # noqa: N818 - reads as the fact it states
    """The VMM ended."""


async def while_alive(vm: Vm, work: Callable[[], Awaitable[T]]) -> T:
    """What `work()` returns or raises; VmLost if the VMM ends first.

    Called here and not by the caller: one cancelled before it got a turn leaves no coroutine nobody awaited.
    """
    try:
        async with asyncio.TaskGroup() as group:
            exit_watch = group.create_task(_until_exit(vm), name="exit-watch")
            result = await work()
            exit_watch.cancel()
    except BaseExceptionGroup as errors:
        lost = errors.subgroup(VmLost)
        raise (lost.exceptions[0] if lost is not None else errors.exceptions[0]) from None
    return result


async def _until_exit(vm: Vm) -> NoReturn:
    await vm.exited.wait()
    raise VmLost
