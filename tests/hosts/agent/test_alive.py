"""Work that is abandoned the moment its VMM ends."""

from __future__ import annotations

import asyncio

import pytest

from hosts.agent.alive import VmLost, while_alive
from hosts.vmm.protocol import Vm
from tests.fakes.vmm import FakeVm
from tests.hosts.agent.rig import ID, Rig


@pytest.fixture
async def vm(rig: Rig) -> Vm:
    vm = (await rig.machine()).vm
    assert vm is not None
    return vm


async def test_it_gives_what_the_work_gives(vm: Vm) -> None:
    assert await while_alive(vm, lambda: asyncio.sleep(0, "done")) == "done"


async def test_it_raises_what_the_work_raises_as_it_is(vm: Vm) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await while_alive(vm, fail)


async def test_the_end_of_the_vmm_ends_the_work(rig: Rig, vm: Vm) -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    asyncio.get_running_loop().call_later(0.01, rig.world.alive(ID)[0].end)
    with pytest.raises(VmLost):
        await while_alive(vm, work)
    assert cancelled.is_set()


async def test_a_vmm_that_has_ended_already_begins_no_work_that_lasts(rig: Rig, vm: Vm) -> None:
    assert isinstance(vm, FakeVm)
    vm.process.end()
    with pytest.raises(VmLost):
        await while_alive(vm, lambda: asyncio.sleep(60))


async def test_a_time_out_around_it_is_a_time_out(vm: Vm) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await while_alive(vm, lambda: asyncio.sleep(60))


async def test_one_cancelled_before_its_turn_has_begun_nothing(vm: Vm) -> None:
    calls: list[str] = []

    async def work() -> None:
        calls.append("began")

    async with asyncio.TaskGroup() as group:
        group.create_task(while_alive(vm, work)).cancel()
    assert calls == []
