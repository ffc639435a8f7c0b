"""Limits as the kernel of this host takes them, and the text of the other version's."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.vmm import cgroups as module
from hosts.vmm.cgroups import Cgroups, Limits, device_of
from hosts.vmm.protocol import VmmError

DISK = "254:0"
LIMITS = Limits(
    memory_bytes=64 << 20,
    cpus=1.5,
    tasks=7,
    devices=frozenset({DISK}),
    io_bytes_per_s=1 << 20,
    io_operations_per_s=100,
)


@pytest.mark.root
def test_a_process_is_limited_found_and_let_go(instance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMOVE_TIMEOUT_S", 0.05)
    cgroups = Cgroups.detect(instance)
    cgroups.make("tiny", LIMITS)
    cgroups.make("tiny", LIMITS)
    try:
        with subprocess.Popen(["sleep", "60"]) as process:
            cgroups.admit("tiny", process.pid)
            assert cgroups.pids("tiny") == {process.pid}
            assert cgroups.names() == {"tiny"}
            with pytest.raises(VmmError, match="stays"):
                cgroups.remove("tiny")
            process.kill()
    finally:
        monkeypatch.undo()
        cgroups.remove("tiny")
        cgroups.remove("tiny")
        cgroups.remove_parent()
    assert cgroups.names() == frozenset()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/burrow-{instance}"))


@pytest.mark.root
def test_too_many_tasks_are_refused_by_the_kernel(instance: str) -> None:
    cgroups = Cgroups.detect(instance)
    cgroups.make("tiny", LIMITS)
    script = "read _; for n in 1 2 3 4 5 6 7 8 9; do sleep 1 & done"
    try:
        with subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            cgroups.admit("tiny", process.pid)
            _, said = process.communicate("\n", timeout=20)
            assert "fork" in said
    finally:
        for path in cgroups.pids("tiny"):
            subprocess.run(["kill", "-9", str(path)], check=False)
        cgroups.remove("tiny")
        cgroups.remove_parent()


@pytest.mark.root
def test_a_process_reads_no_faster_than_it_may(instance: str, tmp_path: Path) -> None:
    device = device_of(tmp_path)
    if device is None:
        pytest.skip("the temporary folder is on no block device")
    file = tmp_path / "file"
    file.write_bytes(os.urandom(3 << 20))
    cgroups = Cgroups.detect(instance)
    cgroups.make("tiny", replace(LIMITS, devices=frozenset({device})))
    read = "read _; exec dd if=$0 of=/dev/null bs=256k iflag=direct status=none"
    try:
        with subprocess.Popen(["sh", "-c", read, file], stdin=subprocess.PIPE, text=True) as process:
            cgroups.admit("tiny", process.pid)
            started = time.monotonic()
            process.communicate("\n", timeout=30)
            assert process.returncode == 0
            assert time.monotonic() - started > 1.5, "three megabytes at one a second"
    finally:
        cgroups.remove("tiny")
        cgroups.remove_parent()


def test_a_disk_is_named_whole_and_none_where_there_is_none(tmp_path: Path) -> None:
    device = device_of(tmp_path)
    assert device is None or not Path(f"/sys/dev/block/{device}/partition").exists()
    assert device_of(Path("/proc/self")) is None


@pytest.mark.root
def test_a_disk_that_knows_no_limit_is_used_without_one(instance: str, caplog: pytest.LogCaptureFixture) -> None:
    cgroups = Cgroups.detect(instance)
    cgroups.make("tiny", replace(LIMITS, devices=frozenset({"4095:1"})))
    cgroups.remove("tiny")
    assert "disk 4095:1: the kernel takes no limit for it" in caplog.text


@pytest.mark.root
def test_who_takes_more_memory_than_it_may_is_ended_and_nobody_else(instance: str) -> None:
    cgroups = Cgroups.detect(instance)
    cgroups.make("tiny", LIMITS)
    fill = "read _; exec head -c 200M /dev/zero | tail"  # tail keeps the last line, which does not end
    try:
        with subprocess.Popen(["sh", "-c", fill], stdin=subprocess.PIPE, text=True) as process:
            cgroups.admit("tiny", process.pid)
            process.communicate("\n", timeout=30)
            assert process.returncode in (-9, 128 + 9)
    finally:
        cgroups.remove("tiny")
        cgroups.remove_parent()


def fake_host(root: Path, version: int) -> Path:
    """A mounts file and the trees it speaks of."""
    if version == 2:
        (root / "v2").mkdir(parents=True)
        (root / "v2/cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (root / "v2/cgroup.subtree_control").write_text("cpu\n")
        lines = [f"cgroup2 {root}/v2 cgroup2 rw 0 0"]
    else:
        lines = []
        for name in ("memory", "cpu,cpuacct", "pids", "blkio"):
            (root / name).mkdir(parents=True)
            lines.append(f"cgroup {root}/{name} cgroup rw,relatime,{name} 0 0")
    mounts = root / "mounts"
    mounts.write_text("\n".join(["proc /proc proc rw 0 0", *lines]) + "\n")
    return mounts


def test_version_2_is_used_whole_where_there_is_one(tmp_path: Path) -> None:
    cgroups = Cgroups.detect("abcdef", fake_host(tmp_path, 2))
    parent = tmp_path / "v2/burrow-abcdef"
    parent.mkdir()
    (parent / "cgroup.subtree_control").write_text("")
    cgroups.make("tiny", LIMITS)
    made = {path.name: path.read_text() for path in (parent / "tiny").iterdir()}
    assert made == {
        "memory.max": str(64 << 20),
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
        "pids.max": "7",
        "io.max": "254:0 rbps=1048576 wbps=1048576 riops=100 wiops=100",
    }
    assert {"+memory", "+pids"} <= set((tmp_path / "v2/cgroup.subtree_control").read_text().split())
    assert (parent / "cgroup.subtree_control").read_text() == "+cpu +io +memory +pids"


def test_version_1_is_used_where_it_is_what_there_is(tmp_path: Path) -> None:
    cgroups = Cgroups.detect("abcdef", fake_host(tmp_path, 1))
    cgroups.make("tiny", LIMITS)
    assert (tmp_path / "memory/burrow-abcdef/tiny/memory.limit_in_bytes").read_text() == str(64 << 20)
    assert (tmp_path / "cpu,cpuacct/burrow-abcdef/tiny/cpu.cfs_quota_us").read_text() == "150000"
    assert (tmp_path / "pids/burrow-abcdef/tiny/pids.max").read_text() == "7"
    made = {path.name: path.read_text() for path in (tmp_path / "blkio/burrow-abcdef/tiny").iterdir()}
    assert made == {
        "blkio.throttle.read_bps_device": "254:0 1048576",
        "blkio.throttle.write_bps_device": "254:0 1048576",
        "blkio.throttle.read_iops_device": "254:0 100",
        "blkio.throttle.write_iops_device": "254:0 100",
    }


def test_a_tree_that_is_not_ours_to_divide_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mounts = fake_host(tmp_path, 2)
    (tmp_path / "v2/cgroup.subtree_control").unlink()
    (tmp_path / "v2/cgroup.subtree_control").mkdir()
    cgroups = Cgroups.detect("abcdef", mounts)
    assert "cannot be used" in caplog.text
    cgroups.make("tiny", LIMITS)
    assert not (tmp_path / "v2/burrow-abcdef").exists()


def test_a_controller_that_is_missing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mounts").write_text("")
    cgroups = Cgroups.detect("abcdef", tmp_path / "mounts")
    assert "gives us no memory cgroup controller" in caplog.text
    cgroups.make("tiny", LIMITS)
    assert cgroups.names() == frozenset()
