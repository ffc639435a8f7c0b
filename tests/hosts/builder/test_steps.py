"""Running a build's commands: what they print is told, and why they end is known."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hosts.builder import steps
from hosts.builder.steps import Failed, Runner

pytestmark = pytest.mark.root

ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(steps, "MEMORY_EVENTS", tmp_path / "memory.events")
    return Runner(ENV, Path("/"), deadline=time.monotonic() + 10)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, object]]]:
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_output_is_told_line_by_line(runner: Runner, told: Callable[[], list[dict[str, object]]]) -> None:
    runner.enter("installing")
    runner.run("echo one; echo two >&2; printf three")
    assert told() == [{"phase": "installing"}, {"line": "one"}, {"line": "two"}, {"line": "three"}]


def test_commands_do_not_run_as_root(runner: Runner, told: Callable[[], list[dict[str, object]]]) -> None:
    runner.run("id -u; id -g; id -G")
    assert [item["line"] for item in told()] == ["1000", "1000", "1000"]


def test_a_failed_command_is_named_with_its_code(runner: Runner) -> None:
    runner.enter("building")
    with pytest.raises(Failed) as failed:
        runner.run("exit 7")
    assert (failed.value.code, failed.value.phase) == ("build:step_failed", "building")
    assert failed.value.message == "`exit 7` ended with exit code 7"


def test_time_that_runs_out_is_called_that() -> None:
    runner = Runner(ENV, Path("/"), deadline=time.monotonic() + 0.3)
    with pytest.raises(Failed) as failed:
        runner.run("sleep 30")
    assert failed.value.code == "build:timeout"


def test_a_full_disk_is_recognised_by_what_the_command_says(runner: Runner) -> None:
    with pytest.raises(Failed) as failed:
        runner.run("echo 'cp: write error: No space left on device'; exit 1")
    assert failed.value.code == "build:disk_full"


def test_memory_that_ran_out_is_recognised_by_the_kernels_count(runner: Runner, tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom 0\noom_kill 0\n")
    events.chmod(0o666)
    tmp_path.chmod(0o777)
    for folder in (tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    with pytest.raises(Failed) as failed:
        runner.run(f"printf 'oom 1\\noom_kill 1\\n' >{events}; kill -9 $$")
    assert failed.value.code == "build:out_of_memory"


def test_a_background_process_does_not_hold_the_build(runner: Runner) -> None:
    began = time.monotonic()
    runner.run("sleep 5 & echo started")
    assert time.monotonic() - began < 3


def test_too_many_lines_are_cut_with_a_notice(
    runner: Runner, told: Callable[[], list[dict[str, object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MAX_LINES", 10)
    runner.run("seq 1 100")
    lines = [str(item["line"]) for item in told()]
    assert len(lines) == 10
    assert "the rest is not shown" in lines[-1]
