"""How a machine comes to run over a fake host: boots, resumes, and the cold boot when memory is lost."""

from __future__ import annotations

import asyncio

import pytest

from hosts.agent import starts
from hosts.wire.commands import SleepDepth, Start
from hosts.wire.events import Cause, Event, EventKind
from hosts.wire.states import MachineState
from tests.fakes.world import App
from tests.hosts.agent.rig import ID, Rig, spec
from tunnel.wire import Code, Refused

S = MachineState


def states(events: list[Event]) -> list[str]:
    return [str(e.state) for e in events if e.kind is EventKind.STATE]


def sessions(events: list[Event]) -> list[tuple[str, str]]:
    return [(str(e.cause), str(e.end_cause)) for e in events if e.kind is EventKind.SESSION_ENDED]


async def test_a_new_machine_boots_and_tells_every_step(rig: Rig) -> None:
    machine = await rig.machine()
    report = await machine.report()
    assert (report.state, report.port, report.failure) == (S.RUNNING, 8080, None)
    assert report.last_start is not None
    assert (report.last_start.start, report.last_start.cause, report.last_start.reason) == (
        Start.COLD_BOOT,
        Cause.DEPLOY,
        "",
    )
    assert [s.name for s in report.last_start.steps] == [
        "queue",
        "prepare",
        "vmm",
        "kernel",
        "app",
        "listening",
        "health",
    ]
    events = await rig.events()
    assert states(events) == ["booting", "running"]
    (started,) = [e for e in events if e.kind is EventKind.SESSION_STARTED]
    assert started.cause is Cause.DEPLOY
    assert [e.seq for e in events] == [1, 2, 3]


async def test_a_paused_machine_goes_on_counting_with_the_right_time(rig: Rig) -> None:
    machine = await rig.machine()
    before = await rig.request(machine)
    await machine.sleep(SleepDepth.PAUSED)
    assert machine.history.state is S.PAUSED
    assert not machine.gate_open
    await rig.clock.advance(3600)
    assert await rig.request(machine) == before + 1
    memory = rig.world.alive(ID)[0].memory
    assert memory.clock_ms == rig.clock.wall_ms()
    assert len(set(memory.entropy)) == len(memory.entropy) == 2
    assert rig.world.boots == 1
    report = (await machine.report()).last_start
    assert report is not None
    assert (report.start, report.cause) == (Start.RESUME, Cause.REQUEST)
    assert sessions(await rig.events()) == [("deploy", "api")]


async def test_a_suspended_machine_has_no_process_and_goes_on_counting(rig: Rig) -> None:
    machine = await rig.machine()
    before = await rig.request(machine)
    await machine.sleep(SleepDepth.SUSPENDED)
    assert machine.history.state is S.SUSPENDED
    assert rig.world.alive() == []
    assert await rig.request(machine) == before + 1
    assert (rig.world.boots, rig.world.loads) == (1, 1)
    assert not machine.parts.snapshots.has_pair(machine.snapshot)
    await rig.settle(machine, S.RUNNING)
    events = await rig.events()
    assert states(events) == ["booting", "running", "paused", "suspending", "suspended", "resuming", "running"]


async def test_the_counter_survives_ten_sleeps_of_either_depth(rig: Rig) -> None:
    machine = await rig.machine()
    counts = [await rig.request(machine)]
    for turn in range(10):
        await machine.sleep(SleepDepth.SUSPENDED if turn % 2 else SleepDepth.PAUSED)
        await rig.clock.advance(1)
        counts.append(await rig.request(machine))
    assert counts == list(range(counts[0], counts[0] + 11))
    assert len([e for e in await rig.events() if e.kind is EventKind.SESSION_STARTED]) == 11


@pytest.mark.parametrize("depth", list(SleepDepth))
async def test_fifty_requests_at_once_cause_one_wake_and_all_are_answered(rig: Rig, depth: SleepDepth) -> None:
    machine = await rig.machine()
    await machine.sleep(depth)
    memory = rig.world.memories[str(machine.files.folder)]
    count = memory.count
    answers = await asyncio.gather(*(rig.request(machine) for _ in range(50)))
    assert sorted(answers) == list(range(count + 1, count + 51))
    assert memory.resumes == 1
    assert rig.world.loads == (1 if depth is SleepDepth.SUSPENDED else 0)
    assert len([e for e in await rig.events() if e.kind is EventKind.SESSION_STARTED]) == 2


async def test_a_dead_vmm_is_a_crash_and_the_next_request_meets_a_cold_boot(rig: Rig) -> None:
    machine = await rig.machine()
    rig.world.alive(ID)[0].end()
    await rig.settle(machine, S.STOPPED)
    assert sessions(await rig.events()) == [("deploy", "crash")]
    await rig.request(machine)
    report = (await machine.report()).last_start
    assert report is not None
    assert (report.start, report.reason) == (Start.COLD_BOOT, "its VMM ended unasked")
    assert rig.world.boots == 2


async def test_a_paused_vmm_that_dies_costs_the_memory_and_nothing_else(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.PAUSED)
    rig.world.alive(ID)[0].end()
    await rig.settle(machine, S.STOPPED)
    await rig.request(machine)
    assert sessions(await rig.events()) == [("deploy", "api")]


@pytest.mark.parametrize("depth", list(SleepDepth))
async def test_a_resume_contract_that_is_not_met_ends_in_a_cold_boot_that_says_so(rig: Rig, depth: SleepDepth) -> None:
    machine = await rig.machine(app=App(resume_error="the clock could not be set"))
    await machine.sleep(depth)
    await rig.request(machine)
    report = (await machine.report()).last_start
    assert report is not None
    assert report.start is Start.COLD_BOOT
    assert "the clock could not be set" in report.reason
    assert rig.world.boots == 2
    assert len(rig.world.alive(ID)) == 1
    assert sessions(await rig.events()) == [("deploy", "api"), ("request", "crash")]


async def test_a_guest_that_hangs_at_its_resume_is_given_up(rig: Rig) -> None:
    machine = await rig.machine(app=App(resume_hangs=True))
    await machine.sleep(SleepDepth.PAUSED)
    await rig.request(machine)
    assert rig.world.boots == 2


@pytest.mark.parametrize("damage", ["state", "memory", "manifest"])
async def test_a_snapshot_that_was_tampered_with_is_refused_and_cold_booted(rig: Rig, damage: str) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    await machine.stop_hashing()
    path = getattr(machine.snapshot, damage)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    await rig.request(machine)
    report = (await machine.report()).last_start
    assert report is not None
    assert report.start is Start.COLD_BOOT
    assert report.reason
    assert rig.world.loads == 0


async def test_a_host_that_cannot_load_a_snapshot_is_asked_less_and_less_often_and_the_memory_stays(rig: Rig) -> None:
    machine = await rig.machine()
    before = await rig.request(machine)
    await machine.sleep(SleepDepth.SUSPENDED)
    rig.vmm.fail_load = "too many open files"
    for _ in range(4):
        await rig.clock.advance(60)
        with pytest.raises(Refused, match="too many open files"):
            await rig.request(machine)
    tries = states(await rig.events()).count("resuming")
    with pytest.raises(Refused, match="not tried again for 8 s"):
        await rig.request(machine)
    assert states(await rig.events()).count("resuming") == tries
    rig.vmm.fail_load = ""
    await rig.clock.advance(8)
    assert await rig.request(machine) == before + 1
    assert (machine.host_faults, rig.world.boots) == (0, 1)


async def test_an_app_that_never_listens_fails_the_check_showing_what_does_listen(rig: Rig) -> None:
    machine = await rig.machine(app=App(listens=False))
    report = await machine.report()
    assert report.state is S.FAILED
    assert report.failure is not None
    assert (report.failure.code, report.failure.phase) == ("check:not_listening", "listening")
    assert "127.0.0.1:9999" in report.failure.message
    assert [(s.address, s.port) for s in report.listening] == [("127.0.0.1", 9999)]
    assert report.log_tail == ("started python app.py",)
    assert rig.world.alive() == []
    events = await rig.events()
    assert (events[-1].state, events[-1].code) == (S.FAILED, "check:not_listening")
    assert sessions(events) == [("deploy", "failed")]


async def test_an_app_that_ends_is_reported_with_its_exit_code(rig: Rig) -> None:
    failure = (await (await rig.machine(app=App(exit_code=3))).report()).failure
    assert failure is not None
    assert failure.code == "app:exited"
    assert "exit code 3" in failure.message


async def test_an_app_with_a_health_path_must_answer_it_well(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "HEALTH_TIMEOUT_S", 0.3)
    process = spec().process
    with_path = type(process)(process.command, health_path="/healthz")
    machine = await rig.machine(app=App(status=500), process=with_path)
    failure = (await machine.report()).failure
    assert failure is not None
    assert failure.code == "check:unhealthy"
    assert "GET /healthz" in failure.message
    assert "status 500" in failure.message


async def test_without_a_health_path_any_http_answer_is_healthy(rig: Rig) -> None:
    assert (await (await rig.machine(app=App(status=500))).report()).state is S.RUNNING


async def test_a_vmm_that_refuses_to_start_fails_the_boot(rig: Rig) -> None:
    rig.vmm.fail_boot = "no memory"
    failure = (await (await rig.machine()).report()).failure
    assert failure is not None
    assert (failure.code, failure.phase) == ("boot:host", "vmm")


async def test_a_vmm_that_ends_during_the_boot_fails_it_at_once(rig: Rig) -> None:
    rig.world.apps[ID] = App(hello_hangs=True)
    machine, _ = await rig.fleet.create(spec())
    while not rig.world.alive(ID):
        await asyncio.sleep(0.001)
    rig.world.alive(ID)[0].end()
    await rig.settle(machine, S.FAILED)
    failure = (await machine.report()).failure
    assert failure is not None
    assert failure.code == "boot:vmm_ended"
    assert "Kernel panic" in failure.message


async def test_a_machine_that_once_worked_is_failed_only_after_three_tries_and_tried_again_later(rig: Rig) -> None:
    machine = await rig.machine()
    rig.world.alive(ID)[0].end()
    await rig.settle(machine, S.STOPPED)
    rig.world.apps[ID].listens = False
    for expected in (S.STOPPED, S.STOPPED, S.FAILED):
        await rig.clock.advance(120)
        with pytest.raises(Refused) as refused:
            await rig.request(machine)
        assert machine.history.state is expected
    assert refused.value.code == Code.MACHINE_FAILED
    rig.world.apps[ID].listens = True
    with pytest.raises(Refused, match="not tried again for"):
        await rig.request(machine)
    await rig.clock.advance(120)
    await rig.request(machine)
    assert machine.history.state is S.RUNNING
    assert machine.history.record.failed_starts == 0


async def test_someone_who_asks_by_api_need_not_wait_out_the_back_off(rig: Rig) -> None:
    machine = await rig.machine(app=App(listens=False))
    rig.world.apps[ID].listens = True
    await machine.wake(Cause.API, deadline_s=5)
    assert machine.history.state is S.RUNNING
