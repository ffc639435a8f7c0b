"""kill -9 of the agent at every step of a machine's life, and what must hold under the next agent.

At most one VMM a machine, and none of nobody's; the record on disk is what the agent says; sessions are billed once,
without overlap, and are open only while vCPUs run; memory outlives the agent wherever it was at rest or running.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from hosts.agent.machine import Machine
from hosts.wire.commands import SleepDepth
from hosts.wire.events import EventKind
from hosts.wire.spec import MachineId
from hosts.wire.states import MachineState
from tests.hosts.agent.crashing import Crash
from tests.hosts.agent.rig import ID, Rig, spec
from tunnel.tasks import spawn

# A killed agent closes nothing: here the garbage collector finds its sockets, where the kernel would.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

S = MachineState
OP_TIMEOUT_S = 5.0
POLL_S = 0.0005
MOST_POINTS = 200
AFTER_A_BOOT = 2  # the app's count for the first visitor: the health check came before

Op = Callable[[Rig, Machine], Coroutine[Any, Any, object]]


async def pause(_rig: Rig, machine: Machine) -> None:
    await machine.sleep(SleepDepth.PAUSED)


async def suspend(_rig: Rig, machine: Machine) -> None:
    await machine.sleep(SleepDepth.SUSPENDED)
    await machine.stop_hashing()


async def wake(rig: Rig, machine: Machine) -> None:
    await rig.request(machine)


async def checkpoint(_rig: Rig, machine: Machine) -> None:
    await machine.checkpoint()


async def destroy(rig: Rig, _machine: Machine) -> None:
    await rig.fleet.destroy(ID)


STEPS: dict[str, tuple[tuple[Op, ...], Op]] = {
    "pause": ((), pause),
    "suspend": ((), suspend),
    "suspend a paused one": ((pause,), suspend),
    "resume from paused": ((pause,), wake),
    "resume from suspended": ((suspend,), wake),
    "checkpoint": ((), checkpoint),
}


async def killed_at(crash: Crash, point: int, work: Coroutine[Any, Any, object]) -> bool:
    """Do it with an agent that dies at that point; False if it ended before it got there."""
    crash.arm(point)
    task = spawn(work, name="the agent to be killed")
    async with asyncio.timeout(OP_TIMEOUT_S):
        while not task.done() and not crash.dead:
            await asyncio.sleep(POLL_S)
    died = crash.dead
    await crash.bury()
    if not died:
        task.result()
    return died


async def holds(heir: Rig) -> None:
    """What must be true once a new agent is up, whatever the old one died of."""
    machines = {m.spec.machine_id: m for m in heir.fleet.all()}
    for process in heir.world.alive():
        assert process.config.name in machines, "a VMM of nobody"
    for machine_id, machine in machines.items():
        assert len(heir.world.alive(machine_id)) <= 1
        _, record = machine.files.load()
        assert record.state is machine.history.state
    assert heir.world.namespaces <= {m.history.record.slot for m in machines.values()}
    await sessions_hold(heir, machines)


async def sessions_hold(heir: Rig, machines: Mapping[MachineId, Machine]) -> None:
    """As control sees them in the journal."""
    started: dict[str, int] = {}
    ended: dict[str, tuple[int, int]] = {}
    for event in await heir.events():
        if event.kind is EventKind.SESSION_STARTED:
            assert event.session_id not in started, "one session begun twice"
            started[str(event.session_id)] = int(event.started_at_ms or 0)
        elif event.kind is EventKind.SESSION_ENDED:
            # Told twice is billed once: control keeps to the first (metering.services).
            ended.setdefault(str(event.session_id), (int(event.started_at_ms or 0), int(event.ended_at_ms or 0)))
    intervals = sorted(ended.values())
    assert all(begin <= end for begin, end in intervals)
    assert all(one[1] <= next_[0] for one, next_ in itertools.pairwise(intervals))
    open_now = {str(m.history.record.session.session_id) for m in machines.values() if m.history.record.session}
    assert set(started) - set(ended) <= open_now, "a session that nobody will ever end"
    for machine in machines.values():
        runs = any(process.running for process in heir.world.alive(machine.spec.machine_id))
        assert runs == (machine.history.record.session is not None)


@pytest.mark.parametrize("step", STEPS)
async def test_memory_and_bill_outlive_an_agent_killed_at_any_point_of_a_step(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Crash(monkeypatch)
    before, op = STEPS[step]
    for point in range(MOST_POINTS):
        folder = tmp_path / str(point)
        folder.mkdir()
        rig = Rig(folder)
        machine = await rig.machine()
        count = await rig.request(machine)
        for prepare in before:
            await prepare(rig, machine)
        await rig.clock.advance(1)
        died = await killed_at(crash, point, op(rig, machine))
        answered = rig.world.memories[str(machine.files.folder)].count  # the dead agent may have let a request through
        assert answered - count in (0, 1)
        heir = await rig.successor()
        adopted = heir.fleet.all()[0]
        await heir.settle(adopted, S.RUNNING, S.PAUSED, S.SUSPENDED)
        where = crash.seen[-1] if died else "the end"
        await holds(heir)
        assert await heir.request(adopted) == answered + 1, where
        assert heir.world.boots == 1, where
        await heir.settle(adopted, S.RUNNING)
        await holds(heir)
        await heir.close()
        if not died:
            assert point > 4, "hardly a step was a crash point"
            return
    pytest.fail(f"more than {MOST_POINTS} crash points")


@pytest.mark.parametrize("step", STEPS)
async def test_an_agent_killed_with_its_vmms_leaves_a_whole_snapshot_or_a_cold_boot_that_says_so(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Crash(monkeypatch)
    before, op = STEPS[step]
    for point in range(MOST_POINTS):
        folder = tmp_path / str(point)
        folder.mkdir()
        rig = Rig(folder)
        machine = await rig.machine()
        for prepare in before:
            await prepare(rig, machine)
        died = await killed_at(crash, point, op(rig, machine))
        answered = rig.world.memories[str(machine.files.folder)].count
        for process in rig.world.alive():
            process.on_exit.clear()
            process.end()
        heir = await rig.successor()
        adopted = heir.fleet.all()[0]
        await heir.settle(adopted, S.STOPPED, S.SUSPENDED)
        await holds(heir)
        kept = adopted.history.state is S.SUSPENDED
        assert kept or adopted.history.record.memory_lost
        assert await heir.request(adopted) == (answered + 1 if kept else AFTER_A_BOOT)
        assert heir.world.boots == (1 if kept else 2)
        await heir.settle(adopted, S.RUNNING)
        await holds(heir)
        await heir.close()
        if not died:
            return
    pytest.fail(f"more than {MOST_POINTS} crash points")


async def test_a_first_boot_comes_to_its_verdict_wherever_an_agent_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Crash(monkeypatch)
    for point in range(MOST_POINTS):
        folder = tmp_path / str(point)
        folder.mkdir()
        rig = Rig(folder)
        died = await killed_at(crash, point, rig.machine())
        heir = await rig.successor()
        adopted, _ = await heir.fleet.create(spec())  # control asks again: it has no answer yet
        await heir.settle(adopted, S.RUNNING)
        assert await heir.request(adopted) >= 1
        await heir.settle(adopted, S.RUNNING)
        await holds(heir)
        await heir.close()
        if not died:
            return
    pytest.fail(f"more than {MOST_POINTS} crash points")


@pytest.mark.parametrize(
    "before", [(), (pause,), (suspend,), (checkpoint,)], ids=["running", "paused", "suspended", "kept"]
)
async def test_a_destruction_is_finished_wherever_an_agent_was_killed(
    before: tuple[Op, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Crash(monkeypatch)
    for point in range(MOST_POINTS):
        folder = tmp_path / str(point)
        folder.mkdir()
        rig = Rig(folder)
        machine = await rig.machine()
        for prepare in before:
            await prepare(rig, machine)
        died = await killed_at(crash, point, destroy(rig, machine))
        heir = await rig.successor()
        await heir.fleet.destroy(ID)  # control asks again
        assert heir.world.alive() == []
        assert list(heir.parts.machines.iterdir()) == []
        assert heir.world.namespaces == set()
        assert heir.slots.used == frozenset()
        await sessions_hold(heir, {})
        await heir.close()
        if not died:
            return
    pytest.fail(f"more than {MOST_POINTS} crash points")
