"""The benches' own arithmetic, and that what they look at is there: a bench that measures nothing would look fine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.box.instance import Instance
from tests.bench import footprint as footprint_module
from tests.bench.footprint import AGENT, Footprint, Held, allocated_bytes
from tests.bench.report import figure, percentile
from tests.bench.soak import check_disk

TOOL_TIMEOUT_S = 30
MIB = 1 << 20


def test_a_percentile_is_one_of_the_samples() -> None:
    samples = [float(n) for n in range(1, 101)]
    assert (percentile(samples, 0.5), percentile(samples, 0.99), percentile(samples, 1)) == (50, 99, 100)
    assert percentile([7.0], 0.99) == 7


def test_a_figure_without_samples_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    figure("nothing", "ms", [], lost=3)
    line = json.loads(capsys.readouterr().out)
    assert (line["name"], line["n"], line["lost"]) == ("nothing", 0, 3)
    assert "p50" not in line


def test_what_is_held_more_than_before_is_named() -> None:
    before = Held(*range(9))
    after = Held(0, 1, 2, 3, 4, 5, 6, 9, 8)
    assert {kind: more for kind, more in after.since(before).items() if more} == {"mounts": 2}


@pytest.mark.root
def test_a_box_is_told_from_the_rest_of_the_machine_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with the settings of a host agent stands for a box of its own."""
    instance = Instance.of(tmp_path)
    (tmp_path / "var/host").mkdir(parents=True)
    (tmp_path / "hosts.py").write_text(
        "import time\nkept = bytearray(30 << 20)\nend = time.process_time() + 0.3\n"
        "while time.process_time() < end: pass\nprint('busy', flush=True)\ntime.sleep(60)\n"
    )
    env = {**os.environ, "BURROW_INSTANCE": instance.id}
    with subprocess.Popen(
        [sys.executable, "-m", "hosts"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    ) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "busy\n"
            footprint = Footprint(instance)
            assert footprint.processes() == {agent.pid: AGENT}
            assert 0.2 < footprint.cpu_s()[AGENT] < 5
            assert footprint.memory_mib()[AGENT] > 30
            held = footprint.held()
            assert (held.processes, held.threads, held.namespaces, held.files) == (1, 1, 0, 0)
            monkeypatch.setattr(footprint_module, "POLL_S", 0.01)
            assert footprint.held_at_rest() == held
            (tmp_path / "var/host/file").touch()
            assert {k: n for k, n in footprint.held().since(held).items() if n} == {"files": 1}
        finally:
            agent.kill()


@pytest.mark.root
def test_a_disk_that_is_not_whole_is_told_of(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(16 * MIB)
    subprocess.run(["mkfs.ext4", "-q", disk], check=True, timeout=TOOL_TIMEOUT_S)
    assert check_disk(disk) == []
    assert allocated_bytes(disk) < 16 * MIB
    assert allocated_bytes(tmp_path / "none") == 0
    with disk.open("r+b") as file:  # the block bitmaps and inode tables of the first group
        file.seek(64 * 1024)
        file.write(b"\xff" * 512 * 1024)
    assert check_disk(disk)
    assert [path.name for path in tmp_path.iterdir()] == ["disk"]
