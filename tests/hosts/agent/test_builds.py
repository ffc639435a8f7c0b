"""Builds on the host: a few at a time, each ends with an outcome, and cancelling leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.agent import builds as builds_module
from hosts.agent.builds import Build, Builds, SourceTooLarge
from hosts.agent.durable import Scribe
from hosts.agent.fleet import HostFull, Slots
from hosts.wire.commands import BuildPhase, BuildReport, Failure, Outcome
from tests.fakes.builder import FakeBuilder


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.fixture
async def builder() -> FakeBuilder:
    return FakeBuilder()


@pytest.fixture
async def builds(tmp_path: Path, builder: FakeBuilder) -> AsyncIterator[Builds]:
    scribe = Scribe()
    builds = Builds(tmp_path / "builds", builder, slots=Slots(4), uid_of=lambda slot: 0, scribe=scribe, at_once=2)
    yield builds
    await builds.cancel_all()
    scribe.close()


async def begin(builds: Builds, builder: FakeBuilder, build_id: str) -> None:
    await builds.declare(replace(builder.spec, build_id=build_id))
    build = builds.find(build_id)
    assert build is not None
    await builds.receive(build, chunks(b"abc", b"def"))


async def end_of(build: Build) -> BuildReport:
    """The report with the outcome; reports of mere phases come before it."""
    async with asyncio.timeout(5):
        while (report := await build.report(after=99, wait_s=5)).outcome is None:
            pass
    return report


async def test_only_so_many_run_at_one_time_and_all_get_their_turn(builds: Builds, builder: FakeBuilder) -> None:
    ids = [f"{n:032x}" for n in range(4)]
    for build_id in ids:
        await begin(builds, builder, build_id)
    while builder.running < 2:
        await asyncio.sleep(0.001)
    builder.may_end.set()
    for build_id in ids:
        build = builds.find(build_id)
        assert build is not None
        assert (await end_of(build)).outcome is Outcome.SUCCEEDED
    assert builder.most_at_once == 2
    assert sorted(set(builder.slots)) == [0, 1]


async def test_another_phase_is_told_at_once(builds: Builds, builder: FakeBuilder) -> None:
    await builds.declare(replace(builder.spec, build_id="c" * 32))
    build = builds.find("c" * 32)
    assert build is not None
    async with asyncio.timeout(2):
        asyncio.get_running_loop().call_later(0.01, build.phase, BuildPhase.BOOTING)
        assert (await build.report(after=0, wait_s=30)).phase is BuildPhase.BOOTING
        build.phase(BuildPhase.INSTALLING)
        assert (await build.report(after=0, wait_s=30)).phase is BuildPhase.INSTALLING
    assert (await build.report(after=0, wait_s=0.01)).phase is BuildPhase.INSTALLING


async def test_a_running_build_is_cancelled_and_its_folder_removed(
    builds: Builds, builder: FakeBuilder, tmp_path: Path
) -> None:
    await begin(builds, builder, "c" * 32)
    build = builds.find("c" * 32)
    assert build is not None
    while not builder.running:
        await asyncio.sleep(0.001)
    waiting = asyncio.get_running_loop().create_task(end_of(build))
    await asyncio.sleep(0)
    await builds.forget("c" * 32)
    assert (await waiting).outcome is Outcome.CANCELLED
    assert builder.running == 0
    assert builds.find("c" * 32) is None
    assert list((tmp_path / "builds").iterdir()) == []


async def test_a_failure_is_an_outcome(builds: Builds, builder: FakeBuilder) -> None:
    builder.result = Failure("build:step_failed", "installing", "pip said no")
    builder.may_end.set()
    await begin(builds, builder, "c" * 32)
    build = builds.find("c" * 32)
    assert build is not None
    report = await end_of(build)
    assert (report.phase, report.outcome, report.failure) == (BuildPhase.DONE, Outcome.FAILED, builder.result)


async def test_a_bug_of_ours_is_an_outcome_too(builds: Builds, builder: FakeBuilder) -> None:
    builder.bug = True
    builder.may_end.set()
    await begin(builds, builder, "c" * 32)
    build = builds.find("c" * 32)
    assert build is not None
    report = await end_of(build)
    assert report.failure is not None
    assert report.failure.code == "build:host"


async def test_the_end_is_told_with_the_last_lines_and_never_before_them(
    builds: Builds, builder: FakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds_module, "MAX_LINES_PER_REPORT", 1)
    builder.may_end.set()
    await begin(builds, builder, "c" * 32)
    build = builds.find("c" * 32)
    assert build is not None
    while not build.ended:
        await asyncio.sleep(0.001)
    first = await build.report(after=0, wait_s=0)
    last = await build.report(after=first.next, wait_s=0)
    assert (first.lines, first.outcome, first.image) == (("got 6 bytes",), None, None)
    assert (last.lines, last.outcome, last.next) == (("built",), Outcome.SUCCEEDED, 2)


async def test_a_source_over_the_limit_is_refused_and_may_be_sent_again(
    builds: Builds, builder: FakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds_module, "MAX_SOURCE_BYTES", 5)
    await builds.declare(builder.spec)
    build = builds.find(builder.spec.build_id)
    assert build is not None
    with pytest.raises(SourceTooLarge):
        await builds.receive(build, chunks(b"abc", b"def"))
    assert not build.started
    await builds.receive(build, chunks(b"abc"))
    assert build.started


async def test_a_source_that_broke_off_starts_nothing(builds: Builds, builder: FakeBuilder) -> None:
    await builds.declare(builder.spec)
    build = builds.find(builder.spec.build_id)
    assert build is not None

    async def broken() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await builds.receive(build, broken())
    assert not build.started


async def test_without_a_slot_the_build_fails_and_says_so(tmp_path: Path, builder: FakeBuilder) -> None:
    scribe = Scribe()
    builds = Builds(tmp_path / "b", builder, slots=Slots(0), uid_of=lambda slot: 0, scribe=scribe, at_once=1)
    await begin(builds, builder, "c" * 32)
    build = builds.find("c" * 32)
    assert build is not None
    report = await end_of(build)
    assert report.failure is not None
    assert "slots" in report.failure.message
    await builds.cancel_all()
    scribe.close()


async def test_finished_builds_make_room_and_unfinished_ones_do_not(
    builds: Builds, builder: FakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds_module, "MAX_BUILDS", 2)
    builder.may_end.set()
    for n in range(3):
        await begin(builds, builder, f"{n:032x}")
        build = builds.find(f"{n:032x}")
        assert build is not None
        await build.report(after=9, wait_s=5)
    await builds.declare(replace(builder.spec, build_id="e" * 32))
    await asyncio.sleep(0.05)
    await builds.declare(replace(builder.spec, build_id="f" * 32))
    with pytest.raises(HostFull):
        await builds.declare(replace(builder.spec, build_id="d" * 32))
