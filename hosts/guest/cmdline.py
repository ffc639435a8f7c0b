"""The guest's kernel command line. One for all machines of a host, so that equal machines have equal arguments."""

from __future__ import annotations

from enum import StrEnum

from hosts.guest.image import GuestImage
from hosts.vmm.protocol import Boot


class Role(StrEnum):
    """What the initramfs makes of the machine's disks."""

    MACHINE = "machine"  # base + release + data
    BUILDER = "builder"  # base + data; source and output are left as they are


COMMON = (
    "console=ttyS0",
    "quiet",
    "loglevel=3",
    # An oops ends the guest, and QEMU with it: a half-dead guest behind a VMM that says "running" helps nobody.
    "oops=panic",
    "panic=-1",
    "reboot=t",
    # virtio-rng and the host's entropy at start do the rest; without this the first reader of /dev/random may wait.
    "random.trust_cpu=on",
    # Debian's kernel tests its ciphers at every start: seven tenths of a second under TCG.
    "cryptomgr.notests",
)


# What a machine's guest frees is cleared at once: that makes holes in the memory file of a sleeping one, and keeps no
# secret in free memory. A builder never sleeps, and clearing its gigabytes at boot costs seconds under TCG.
MACHINE_ONLY = ("init_on_free=1",)


def kernel_cmdline(role: Role = Role.MACHINE, *, tsc_khz: int = 0) -> str:
    """`tsc_khz` is needed under TCG (hosts.guest.tsc) and must be 0 under KVM, which tells its guests by itself."""
    words = [*COMMON, *(MACHINE_ONLY if role is Role.MACHINE else ()), f"burrow.role={role}"]
    if tsc_khz:
        # reliable: with two vCPUs the kernel would find the counters unequal (TCG runs them by turns) and fall back to
        # counting ticks, of which a busy host delivers too few. All vCPUs read the host's one counter.
        words += [f"tsc_early_khz={tsc_khz}", "tsc=reliable"]
    return " ".join(words)


def guest_boot(image: GuestImage, role: Role = Role.MACHINE, *, tsc_khz: int = 0) -> Boot:
    """What a VMM needs to start this image's kernel."""
    return Boot(kernel=image.kernel, initramfs=image.initramfs, cmdline=kernel_cmdline(role, tsc_khz=tsc_khz))
