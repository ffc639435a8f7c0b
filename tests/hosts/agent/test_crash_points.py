"""kill -9 of the agent at every step of a machine's life, and what must hold under the next agent.

At most one VMM a machine, and none of nobody's; the record on disk is what the agent says; sessions are billed once,
without overlap, and are open only while vCPUs run; memory outlives the agent wherever it was at rest or running.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
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

Op = Callable[[Rig], Coroutine[Any, Any, object]]


def the_one(rig: Rig) -> Machine:
    (machine,) = rig.fleet.all()
    return machine


async def boot(rig: Rig) -> None:
    await rig.machine()


async def visit(rig: Rig) -> None:
    await rig.request(the_one(rig))


async def pause(rig: Rig) -> None:
    await the_one(rig).sleep(SleepDepth.PAUSED)


async def suspend(rig: Rig) -> None:
    await the_one(rig).sleep(SleepDepth.SUSPENDED)
    await the_one(rig).stop_hashing()


async def checkpoint(rig: Rig) -> None:
    await the_one(rig).checkpoint()


async def destroy(rig: Rig) -> None:
    await rig.fleet.destroy(ID)


STEPS: dict[str, tuple[tuple[Op, ...], Op]] = {
    "pause": ((boot, visit), pause),
    "suspend": ((boot, visit), suspend),
    "suspend a paused one": ((boot, visit, pause), suspend),
    "resume from paused": ((boot, visit, pause), visit),
    "resume from suspended": ((boot, visit, suspend), visit),
    "checkpoint": ((boot, visit), checkpoint),
}


@dataclass(frozen=True, slots=True)
class Death:
    """A host whose agent was killed."""

    rig: Rig
    where: str
    count: int  # requests that the app had answered when the step began

    @property
    def answered(self) -> int:
        return answered(self.rig)


def answered(rig: Rig) -> int:
    return sum(memory.count for memory in rig.world.memories.values())


async def deaths(crash: Crash, folder: Path, before: tuple[Op, ...], step: Op) -> AsyncIterator[Death]:
    """One for each crash point of the step, and a last one whose agent ended the step unharmed."""
    for point in range(MOST_POINTS):
        (folder / str(point)).mkdir()
        rig = Rig(folder / str(point))
        for prepare in before:
            await prepare(rig)
        await rig.clock.advance(1)
        count = answered(rig)
        died = await killed_at(crash, point, step(rig))
        yield Death(rig, crash.seen[-1] if died else "the end", count)
        if not died:
            assert point > 4, "hardly a step was a crash point"
            return
    pytest.fail(f"more than {MOST_POINTS} crash points")


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


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Crash:
    return Crash(monkeypatch)


@pytest.mark.parametrize("step", STEPS)
async def test_memory_and_bill_outlive_an_agent_killed_at_any_point_of_a_step(
    step: str, tmp_path: Path, crash: Crash
) -> None:
    async for death in deaths(crash, tmp_path, *STEPS[step]):
        count = death.answered  # the dead agent may have let a request through
        assert count - death.count in (0, 1)
        heir = await death.rig.successor()
        adopted = the_one(heir)
        await heir.settle(adopted, S.RUNNING, S.PAUSED, S.SUSPENDED)
        await holds(heir)
        assert await heir.request(adopted) == count + 1, death.where
        assert heir.world.boots == 1, death.where
        await heir.settle(adopted, S.RUNNING)
        await holds(heir)
        await heir.close()


@pytest.mark.parametrize("step", STEPS)
async def test_an_agent_killed_with_its_vmms_leaves_a_whole_snapshot_or_a_cold_boot_that_says_so(
    step: str, tmp_path: Path, crash: Crash
) -> None:
    async for death in deaths(crash, tmp_path, *STEPS[step]):
        count = death.answered
        for process in death.rig.world.alive():
            process.on_exit.clear()
            process.end()
        heir = await death.rig.successor()
        adopted = the_one(heir)
        await heir.settle(adopted, S.STOPPED, S.SUSPENDED)
        await holds(heir)
        kept = adopted.history.state is S.SUSPENDED
        assert kept or adopted.history.record.memory_lost
        assert await heir.request(adopted) == (count + 1 if kept else AFTER_A_BOOT), death.where
        assert heir.world.boots == (1 if kept else 2), death.where
        await heir.settle(adopted, S.RUNNING)
        await holds(heir)
        await heir.close()


async def test_a_first_boot_comes_to_its_verdict_wherever_an_agent_was_killed(tmp_path: Path, crash: Crash) -> None:
    async for death in deaths(crash, tmp_path, (), boot):
        heir = await death.rig.successor()
        adopted, _ = await heir.fleet.create(spec())  # control asks again: it has no answer yet
        await heir.settle(adopted, S.RUNNING)
        assert await heir.request(adopted) >= 1
        await heir.settle(adopted, S.RUNNING)
        await holds(heir)
        await heir.close()


@pytest.mark.parametrize(
    "before", [(), (pause,), (suspend,), (checkpoint,)], ids=["running", "paused", "suspended", "kept"]
)
async def test_a_destruction_is_finished_wherever_an_agent_was_killed(
    before: tuple[Op, ...], tmp_path: Path, crash: Crash
) -> None:
    async for death in deaths(crash, tmp_path, (boot, *before), destroy):
        heir = await death.rig.successor()
        await heir.fleet.destroy(ID)  # control asks again
        assert heir.world.alive() == []
        assert list(heir.parts.machines.iterdir()) == []
        assert heir.world.namespaces == set()
        assert heir.slots.used == frozenset()
        await sessions_hold(heir, {})
        await heir.close()
