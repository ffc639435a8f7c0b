"""What a stream meets: a gate, a wake, a refusal, or an end when its guest is gone."""

from __future__ import annotations

import asyncio

import pytest

from hosts.wire.commands import SleepDepth
from hosts.wire.states import MachineState
from tests.hosts.agent.rig import ID, Rig
from tunnel.tasks import spawn
from tunnel.wire import Code, Refused

S = MachineState


async def test_a_route_that_may_not_wake_is_told_that_the_machine_sleeps(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    with pytest.raises(Refused) as refused:
        await rig.request(machine, may_wake=False)
    assert refused.value.code == Code.MACHINE_ASLEEP
    assert machine.history.state is S.PAUSED


async def test_an_open_stream_is_held_at_the_gate_and_goes_on_after_the_wake(rig: Rig) -> None:
    machine = await rig.machine()
    target = await rig.streams.open_machine(ID, may_wake=True, request="r")
    await machine.sleep(SleepDepth.SUSPENDED)
    assert not target.gate.is_open()
    await target.gate.wait()
    assert target.gate.is_open()
    assert machine.history.state is S.RUNNING
    target.sock.close()


async def test_streams_to_a_guest_that_died_end_at_once(rig: Rig) -> None:
    machine = await rig.machine()
    target = await rig.streams.open_machine(ID, may_wake=True, request="r")
    rig.world.alive(ID)[0].end()
    async with asyncio.timeout(5):
        assert await asyncio.get_running_loop().sock_recv(target.sock, 10) == b""
    target.sock.close()
    await rig.settle(machine, S.STOPPED)


async def test_streams_to_a_machine_that_falls_asleep_stay(rig: Rig) -> None:
    machine = await rig.machine()
    target = await rig.streams.open_machine(ID, may_wake=True, request="r")
    await machine.sleep(SleepDepth.SUSPENDED)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await asyncio.get_running_loop().sock_recv(target.sock, 10)
    target.sock.close()


async def test_a_request_that_comes_as_the_guest_dies_meets_its_cold_boot(rig: Rig) -> None:
    machine = await rig.machine()
    died = machine.vm
    rig.world.alive(ID)[0].end()
    assert machine.gate_open  # the agent has not noticed yet
    target = await rig.streams.open_machine(ID, may_wake=True, request="r")
    target.sock.close()
    assert machine.vm is not died
    assert machine.history.state is S.RUNNING


async def test_an_unknown_machine_is_unknown(rig: Rig) -> None:
    with pytest.raises(Refused) as refused:
        await rig.streams.open_machine("f" * 32, may_wake=True, request="r")
    assert refused.value.code == Code.MACHINE_UNKNOWN


async def test_an_app_that_moved_to_another_port_is_found_again(rig: Rig) -> None:
    machine = await rig.machine()
    rig.world.apps[ID].port = 3000
    await rig.request(machine)
    assert machine.history.record.port == 3000


async def test_a_probe_is_told_the_state_and_is_no_activity(rig: Rig) -> None:
    machine = await rig.machine()
    before = machine.activity.last_at
    await rig.clock.advance(5)
    assert rig.streams.machine_state(ID) == "running"
    assert machine.activity.last_at == before
    await machine.sleep(SleepDepth.SUSPENDED)
    assert rig.streams.machine_state(ID) == "suspended"
    wake = spawn(rig.request(machine), name="wake")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.streams.machine_state(ID) == "waking"
    await wake
    assert rig.streams.machine_state(ID) == "running"
    with pytest.raises(Refused) as refused:
        rig.streams.machine_state("f" * 32)
    assert refused.value.code == Code.MACHINE_UNKNOWN


async def test_a_quiet_stream_holds_off_sleep_but_does_not_begin_the_idle_period_anew(rig: Rig) -> None:
    machine = await rig.machine()
    before = machine.activity.last_at
    await rig.clock.advance(5)
    rig.streams.activity("edge", ID, 1, quiet=True)
    target = await rig.streams.open_machine(ID, may_wake=False, request="r", quiet=True)
    target.gate.touch()
    assert machine.activity.in_flight == 1
    rig.streams.activity("edge", ID, 0, quiet=True)
    target.sock.close()
    assert (machine.activity.in_flight, machine.activity.last_at) == (0, before)
    await rig.request(machine)
    assert machine.activity.last_at > before
