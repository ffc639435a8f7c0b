from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hosts.vmm import arguments
from hosts.vmm.arguments import Accelerator
from hosts.vmm.protocol import Boot, Disk, VmConfig

CONFIG = VmConfig(
    name="a" * 32,
    folder=Path("/srv/one"),
    memory_mib=256,
    vcpus=1,
    boot=Boot(Path("/srv/vmlinuz"), Path("/srv/initramfs"), "console=ttyS0 quiet"),
    disks=(Disk("base", Path("/srv/base"), read_only=True), Disk("data", Path("/srv/one/disk"), read_only=False)),
    mac="02:bf:00:00:00:02",
    netns="bwabcdef-1",
    uid=700_000_001,
)


def shape_of(config: VmConfig, accelerator: Accelerator = Accelerator.TCG) -> str:
    return arguments.sha256(config, accelerator)


def test_the_shape_does_not_depend_on_where_a_machine_lies() -> None:
    elsewhere = replace(
        CONFIG,
        name="b" * 32,
        folder=Path("/srv/two"),
        boot=Boot(Path("/other/vmlinuz"), Path("/other/initramfs"), "console=ttyS0 quiet"),
        disks=tuple(replace(disk, path=Path("/other") / disk.serial) for disk in CONFIG.disks),
        netns="bwabcdef-2",
        uid=700_000_002,
    )
    assert shape_of(elsewhere) == shape_of(CONFIG)


@pytest.mark.parametrize(
    "other",
    [
        replace(CONFIG, memory_mib=512),
        replace(CONFIG, vcpus=2),
        replace(CONFIG, mac="02:bf:00:00:00:03"),
        replace(CONFIG, boot=replace(CONFIG.boot, cmdline="console=ttyS0")),
        replace(CONFIG, disks=CONFIG.disks[:1]),
        replace(CONFIG, disks=CONFIG.disks[::-1]),
        replace(CONFIG, disks=(CONFIG.disks[0], replace(CONFIG.disks[1], read_only=True))),
    ],
)
def test_the_shape_changes_with_everything_a_guest_can_see(other: VmConfig) -> None:
    assert shape_of(other) != shape_of(CONFIG)


def test_the_shape_is_the_same_for_boot_and_load_but_not_for_kvm() -> None:
    boot = arguments.command(CONFIG, Accelerator.TCG, instance="abcdef", incoming=False)
    load = arguments.command(CONFIG, Accelerator.TCG, instance="abcdef", incoming=True)
    assert load == (*boot, "-incoming", "defer")
    assert shape_of(CONFIG, Accelerator.KVM) != shape_of(CONFIG)


def test_every_disk_is_raw_and_only_the_data_disk_writable() -> None:
    drives = [word for word in arguments.shape(CONFIG, Accelerator.TCG) if word.startswith("if=none")]
    assert all(",format=raw," in drive for drive in drives)
    assert ["read-only=on" in drive for drive in drives] == [True, False]


def test_nothing_runs_before_it_is_told_to_and_the_sandbox_is_whole() -> None:
    command = arguments.command(CONFIG, Accelerator.TCG, instance="abcdef", incoming=False)
    assert "-S" in command
    assert "-no-reboot" in command
    sandbox = command[command.index("-sandbox") + 1].split(",")
    assert set(sandbox) == {
        "on",
        "obsolete=deny",
        "elevateprivileges=deny",
        "spawn=deny",
        "resourcecontrol=deny",
    }


@pytest.mark.parametrize(
    "broken",
    [
        replace(CONFIG, name="with,comma"),
        replace(CONFIG, name=""),
        replace(CONFIG, mac="02:bf:00:00:00:02,romfile=/x"),
        replace(CONFIG, memory_mib=0),
        replace(CONFIG, vcpus=0),
        replace(CONFIG, uid=0),
        replace(CONFIG, disks=(replace(CONFIG.disks[0], serial="base,readonly=off"),)),
        replace(CONFIG, disks=(CONFIG.disks[0], CONFIG.disks[0])),
        replace(CONFIG, disks=(replace(CONFIG.disks[0], serial="x" * 21),)),
    ],
)
def test_what_may_not_become_an_argument_is_refused(broken: VmConfig) -> None:
    with pytest.raises(ValueError, match=r"name|MAC|size|uid|serials"):
        arguments.check(broken)
    arguments.check(CONFIG)
