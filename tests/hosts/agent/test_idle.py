"""When a machine is due for rest: the pure decision, the activity it judges by, and the loop around both."""

from __future__ import annotations

import asyncio

import pytest

from hosts.agent import idle
from hosts.agent.idle import Activity, Idler, Step, next_step
from hosts.wire.spec import Policy
from hosts.wire.states import MachineState
from tests.fakes.clock import FakeClock
from tests.hosts.agent.rig import Rig, spec

S = MachineState
POLICY = Policy(idle_period_s=60, suspend_after_s=300)


@pytest.mark.parametrize(
    ("state", "in_flight", "quiet_s", "asleep_s", "expected"),
    [
        (S.RUNNING, 0, 59.9, 0, None),
        (S.RUNNING, 0, 60, 0, Step.PAUSE),
        (S.RUNNING, 1, 9999, 9999, None),
        (S.PAUSED, 0, 9999, 299.9, None),
        (S.PAUSED, 0, 9999, 300, Step.SUSPEND),
        (S.PAUSED, 1, 9999, 9999, None),
        (S.SUSPENDED, 0, 9999, 9999, None),
        (S.BOOTING, 0, 9999, 9999, None),
        (S.RESUMING, 0, 9999, 9999, None),
        (S.STOPPED, 0, 9999, 9999, None),
        (S.FAILED, 0, 9999, 9999, None),
    ],
)
def test_the_next_step(
    state: MachineState, in_flight: int, quiet_s: float, asleep_s: float, expected: Step | None
) -> None:
    assert next_step(state=state, policy=POLICY, in_flight=in_flight, quiet_s=quiet_s, asleep_s=asleep_s) is expected


async def test_in_flight_is_the_sum_over_edges_and_open_streams() -> None:
    activity = Activity(FakeClock())
    activity.set_in_flight("a", 2)
    activity.set_in_flight("b", 1)
    with activity.held():
        assert activity.in_flight == 4
    activity.set_in_flight("a", 0)
    assert activity.in_flight == 1
    activity.forget("b")
    assert activity.in_flight == 0


async def test_the_idle_period_starts_at_the_end_of_the_last_request() -> None:
    clock = FakeClock()
    activity = Activity(clock)
    activity.set_in_flight("a", 1)
    await clock.advance(500)
    activity.set_in_flight("a", 0)
    assert activity.last_at == clock.monotonic()
    await clock.advance(5)
    activity.forget("a")
    assert activity.last_at == clock.monotonic() - 5


async def _ticks(rig: Rig, idler: Idler, seconds: float) -> None:
    await rig.clock.advance(seconds)
    idler.look()
    while idler.busy:
        await asyncio.sleep(0.001)


async def test_a_quiet_machine_is_paused_and_later_suspended(rig: Rig) -> None:
    machine = await rig.machine()
    idler = Idler(rig.fleet.all, rig.clock)
    await _ticks(rig, idler, 59)
    assert machine.history.state is S.RUNNING
    await _ticks(rig, idler, 2)
    assert machine.history.state is S.PAUSED
    await _ticks(rig, idler, 298)
    assert machine.history.state is S.PAUSED
    await _ticks(rig, idler, 3)
    assert machine.history.state is S.SUSPENDED


async def test_what_is_in_flight_keeps_it_awake_however_long_it_takes(rig: Rig) -> None:
    machine = await rig.machine()
    idler = Idler(rig.fleet.all, rig.clock)
    rig.streams.activity("edge", machine.spec.machine_id, 1)
    await _ticks(rig, idler, 100_000)
    assert machine.history.state is S.RUNNING
    rig.streams.activity("edge", machine.spec.machine_id, 0)
    await _ticks(rig, idler, 59)
    assert machine.history.state is S.RUNNING
    await _ticks(rig, idler, 2)
    assert machine.history.state is S.PAUSED


async def test_a_lost_link_has_nothing_in_flight(rig: Rig) -> None:
    machine = await rig.machine()
    idler = Idler(rig.fleet.all, rig.clock)
    rig.streams.activity("edge", machine.spec.machine_id, 3)
    rig.streams.link_lost("edge")
    await _ticks(rig, idler, 61)
    assert machine.history.state is S.PAUSED


async def test_a_new_policy_counts_from_the_same_quiet(rig: Rig) -> None:
    machine = await rig.machine()
    idler = Idler(rig.fleet.all, rig.clock)
    await _ticks(rig, idler, 30)
    await machine.set_policy(Policy(idle_period_s=20, suspend_after_s=1))
    await _ticks(rig, idler, 0)
    assert machine.history.state is S.PAUSED


async def test_timers_are_armed_again_after_a_restart_of_the_agent(rig: Rig) -> None:
    machine = await rig.machine()
    await rig.clock.advance(61)
    await machine.pause_if_idle()
    await rig.clock.advance(250)
    heir = await rig.successor()
    adopted = heir.fleet.all()[0]
    idler = Idler(heir.fleet.all, heir.clock)
    await _ticks(heir, idler, 40)
    assert adopted.history.state is S.PAUSED
    await _ticks(heir, idler, 20)
    assert adopted.history.state is S.SUSPENDED
    await heir.close()


async def test_only_so_many_fall_asleep_at_one_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "MAX_FALLING_ASLEEP", 2)
    machines = [(await rig.fleet.create(spec(f"{n:032x}")))[0] for n in range(5)]
    for machine in machines:
        await rig.settle(machine, S.RUNNING)
    idler = Idler(rig.fleet.all, rig.clock)
    await _ticks(rig, idler, 61)
    assert [m.history.state for m in machines].count(S.PAUSED) == 2
    await _ticks(rig, idler, 1)
    await _ticks(rig, idler, 1)
    assert [m.history.state for m in machines].count(S.PAUSED) == 5


async def test_a_suspend_that_failed_is_not_tried_again_at_once(rig: Rig) -> None:
    machine = await rig.machine()
    idler = Idler(rig.fleet.all, rig.clock)
    rig.vmm.fail_save = True
    await _ticks(rig, idler, 61)
    await _ticks(rig, idler, 301)
    assert machine.history.state is S.PAUSED
    assert idler.due(machine) is None
    rig.vmm.fail_save = False
    await _ticks(rig, idler, 301)
    assert machine.history.state is S.SUSPENDED
