"""QEMU's argument list as a pure function of a machine's config: equal configs give equal arguments, which is what
makes a snapshot loadable.

Paths are those inside the jail and descriptors have fixed numbers, so the list does not depend on where a machine's
files lie on this host. Everything a guest can see is decided here; a tenant chooses none of it but sizes.
"""

from __future__ import annotations

import hashlib
import re
from enum import IntEnum, StrEnum
from pathlib import PurePosixPath

from hosts.vmm.protocol import VmConfig

# Part of every snapshot's VMM version: raise it with any change here that alters device state and that the arguments
# do not show.
SHAPE = 1

MACHINE = PurePosixPath("/machine")
MEMORY = MACHINE / "memory"
KERNEL = MACHINE / "kernel"
INITRAMFS = MACHINE / "initramfs"
DISKS = PurePosixPath("/disks")

# QEMU's translated code: bounded, because it would otherwise grow to an eighth of the host's memory. Its size changes
# no figure (facts).
TRANSLATION_BUFFER_MIB = 128  # of translated code, without KVM

_NAME = re.compile(r"[a-z0-9-]{1,64}")
_SERIAL = re.compile(r"[a-z0-9-]{1,20}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_MEMORY_MIB = range(32, 1 << 20)
_VCPUS = range(1, 65)


class Accelerator(StrEnum):
    """What runs guest code."""

    KVM = "kvm"
    TCG = "tcg"


class Fd(IntEnum):
    """Descriptors QEMU is started with."""

    QMP = 3
    CONSOLE = 4
    TAP = 5
    MEMORY_LOCK = 6  # never read: holding it is what keeps a second QEMU off the memory file
    INFO = 7  # bubblewrap's, closed before QEMU starts
    BLOCK = 8  # bubblewrap's
    SECCOMP = 9  # bubblewrap's


def check(config: VmConfig) -> None:
    """ValueError for a config that may not become arguments."""
    if not _NAME.fullmatch(config.name):
        raise ValueError(f"machine name {config.name!r}")
    if not _MAC.fullmatch(config.mac):
        raise ValueError(f"MAC address {config.mac!r}")
    if config.memory_mib not in _MEMORY_MIB or config.vcpus not in _VCPUS:
        raise ValueError(f"size of {config.memory_mib} MiB and {config.vcpus} vCPUs")
    if config.uid <= 0:
        raise ValueError(f"uid {config.uid}")
    serials = [disk.serial for disk in config.disks]
    if len(set(serials)) != len(serials) or not all(_SERIAL.fullmatch(serial) for serial in serials):
        raise ValueError(f"disk serials {serials!r}")


def shape(config: VmConfig, accelerator: Accelerator) -> tuple[str, ...]:
    """The arguments that a snapshot must be loaded with again."""
    arguments = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-machine",
        "microvm,acpi=on,rtc=on,x-option-roms=off,memory-backend=ram",
        *_acceleration(accelerator),
        "-smp",
        str(config.vcpus),
        "-m",
        f"{config.memory_mib}M",
        "-object",
        f"memory-backend-file,id=ram,size={config.memory_mib}M,mem-path={MEMORY},share=on",
        "-global",
        "virtio-mmio.force-legacy=off",
        "-kernel",
        str(KERNEL),
        "-initrd",
        str(INITRAMFS),
        "-append",
        config.boot.cmdline,
    ]
    for disk in config.disks:
        read_only = "on" if disk.read_only else "off"
        # The format is never guessed: a guest may write what looks like a qcow2 header into its raw disk.
        arguments += [
            "-drive",
            f"if=none,id={disk.serial},file={DISKS / disk.serial},format=raw,read-only={read_only},discard=unmap",
            "-device",
            f"virtio-blk-device,drive={disk.serial},serial={disk.serial}",
        ]
    arguments += [
        "-netdev",
        f"tap,id=net,fd={int(Fd.TAP)}",
        "-device",
        f"virtio-net-device,netdev=net,mac={config.mac}",
        "-object",
        "rng-builtin,id=random",
        "-device",
        "virtio-rng-device,rng=random",
        "-chardev",
        f"socket,id=console,fd={int(Fd.CONSOLE)},server=on,wait=off",
        "-serial",
        "chardev:console",
    ]
    return tuple(arguments)


def process_name(instance: str, name: str) -> str:
    """What QEMU calls itself, and what a QEMU nobody remembers is recognised by."""
    return f"{instance}:{name}"


def command(config: VmConfig, accelerator: Accelerator, *, instance: str, incoming: bool) -> tuple[str, ...]:
    """Everything after the name of the program: the shape, what names this run and what protects the host."""
    return (
        *shape(config, accelerator),
        "-name",
        process_name(instance, config.name),
        "-chardev",
        f"socket,id=qmp,fd={int(Fd.QMP)},server=on,wait=off",
        "-mon",
        "chardev=qmp,mode=control",
        "-no-reboot",  # a guest that reboots ends its QEMU, and the agent decides what follows
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-S",  # vCPUs start when the agent says so
        *(("-incoming", "defer") if incoming else ()),
    )


def sha256(config: VmConfig, accelerator: Accelerator) -> str:
    """The shape's hash, for a snapshot's manifest."""
    return hashlib.sha256("\0".join(shape(config, accelerator)).encode()).hexdigest()


def _acceleration(accelerator: Accelerator) -> tuple[str, ...]:
    if accelerator is Accelerator.KVM:
        return ("-accel", "kvm", "-cpu", "host")
    return ("-accel", f"tcg,thread=multi,tb-size={TRANSLATION_BUFFER_MIB}", "-cpu", "max")
