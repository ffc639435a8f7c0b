"""The memory file before QEMU has it; starting QEMU itself is in test_qemu.py."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.vmm import launch
from hosts.vmm.launch import keep_descriptors_home, make_memory, open_memory
from hosts.vmm.protocol import Boot, VmConfig, VmmError

MIB = 1 << 20

pytestmark = pytest.mark.root


@pytest.fixture
def config(tmp_path: Path) -> VmConfig:
    return VmConfig(
        name="tiny",
        folder=tmp_path,
        memory_mib=32,
        vcpus=1,
        boot=Boot(Path("/k"), Path("/i"), ""),
        disks=(),
        mac="02:bf:00:00:00:02",
        netns="none",
        uid=12345,
    )


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "BUSY_TIMEOUT_S", 0.02)


def test_fresh_memory_is_reserved_zero_and_the_machines_own(config: VmConfig) -> None:
    (config.folder / "memory").write_bytes(b"of an earlier life")
    os.close(make_memory(config))
    memory = config.folder / "memory"
    stat = memory.stat()
    assert (stat.st_size, stat.st_uid, stat.st_mode & 0o777) == (32 * MIB, 12345, 0o600)
    assert stat.st_blocks * 512 >= 32 * MIB
    assert not any(memory.read_bytes())


def test_memory_in_use_is_neither_replaced_nor_opened(config: VmConfig) -> None:
    held = make_memory(config)
    inode = (config.folder / "memory").stat().st_ino
    for take in (make_memory, open_memory):
        with pytest.raises(OSError, match="another VMM uses this memory"):
            take(config)
    assert (config.folder / "memory").stat().st_ino == inode
    os.close(held)
    os.close(open_memory(config))


def test_opening_reserves_again_and_keeps_the_time_stamp(config: VmConfig) -> None:
    memory = config.folder / "memory"
    with memory.open("wb") as file:
        file.truncate(32 * MIB)
    os.utime(memory, ns=(5, 7))
    os.close(open_memory(config))
    assert memory.stat().st_blocks * 512 >= 32 * MIB
    assert memory.stat().st_mtime_ns == 7


def test_memory_of_another_size_or_behind_a_link_is_refused(config: VmConfig) -> None:
    os.close(make_memory(config))
    with pytest.raises(VmmError, match="64 MiB"):
        open_memory(replace(config, memory_mib=64))
    memory = config.folder / "memory"
    memory.rename(config.folder / "elsewhere")
    memory.symlink_to("elsewhere")
    for take in (make_memory, open_memory):
        with pytest.raises(OSError, match="symbolic"):
            take(config)


def test_no_room_is_an_error_and_leaves_no_file(config: VmConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        make_memory(config)
    assert list(config.folder.iterdir()) == []


def test_what_the_agent_inherited_is_not_passed_on() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    keep_descriptors_home()
    assert not os.get_inheritable(writing)
    os.close(reading)
    os.close(writing)
