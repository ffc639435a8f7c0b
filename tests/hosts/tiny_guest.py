"""A guest of a few megabytes for tests of the host's mechanics: Debian's cloud kernel, busybox and one shell script.

It needs none of the real guest images, boots in about a second under TCG, and runs every line it is sent on TCP port
8080 as a shell command. Its memory is its root file system, so a counter kept in a file there lives and dies with the
machine's memory. Cached by content outside the checkout, since unpacking a kernel takes longer than most tests.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hosts.guest.tsc import host_tsc_khz
from hosts.vmm.protocol import Boot

CACHE = Path(os.environ.get("BURROW_TEST_CACHE", "/var/tmp/burrow-test-guest"))
BUSYBOX = Path("/bin/busybox")
KERNEL_PACKAGE = "linux-image-cloud-amd64"
DOWNLOAD_TIMEOUT_S = 300
PORT = 8080
CMDLINE = "console=ttyS0 reboot=t panic=-1 quiet loglevel=1"

# The order is the order of dependency.
MODULES = (
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_mmio",
    "drivers/block/virtio_blk",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "drivers/char/hw_random/virtio-rng",
)

INIT = """#!/bin/sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in /modules/*.ko; do insmod "$module"; done
ip link set lo up
ip addr add 172.31.255.2/30 dev eth0
ip link set eth0 up
ip neigh replace 172.31.255.1 lladdr 02:bf:00:00:00:01 dev eth0 nud permanent
ip route add default via 172.31.255.1
mkdir -p /data
for device in /sys/block/vd*; do
  if [ "$(cat "$device/serial")" = data ]; then mount -t ext4 "/dev/${device##*/}" /data; fi
done
echo 0 > /counter
echo tiny guest is up
while true; do nc -ll -p 8080 -e /bin/answer; done
"""

ANSWER = """#!/bin/sh
read -r line
eval "$line" 2>&1
"""


@dataclass(frozen=True, slots=True)
class TinyGuest:
    """What a test boots."""

    kernel: Path
    initramfs: Path

    @property
    def boot(self) -> Boot:
        """Under TCG a kernel must be told how fast its time stamp counter runs (hosts.guest.tsc)."""
        tsc_khz = host_tsc_khz(CACHE / "tsc_khz")
        return Boot(kernel=self.kernel, initramfs=self.initramfs, cmdline=f"{CMDLINE} tsc_early_khz={tsc_khz}")


class NoTestGuest(Exception):  # noqa: N818 - reads as the fact it states
    """The kernel package or busybox is not to be had; the text says which."""


def tiny_guest() -> TinyGuest:
    """The guest, made at the first call on this machine."""
    if not BUSYBOX.exists():
        raise NoTestGuest("busybox-static is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kernel_tree = _kernel_tree()
        return TinyGuest(kernel=next((kernel_tree / "boot").glob("vmlinuz-*")), initramfs=_initramfs(kernel_tree))


def _kernel_tree() -> Path:
    ready = CACHE / "kernel"
    if ready.is_dir():
        return ready
    package = _run(["apt-cache", "depends", "--important", KERNEL_PACKAGE])
    names = [line.split()[-1] for line in package.splitlines() if "Depends: linux-image-" in line]
    if not names:
        raise NoTestGuest(f"apt knows no {KERNEL_PACKAGE}; has `apt-get update` been run?")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        _run(["apt-get", "download", names[0]], cwd=Path(scratch))
        (deb,) = Path(scratch).glob("*.deb")
        _run(["dpkg-deb", "-x", str(deb), f"{scratch}/tree"])
        Path(f"{scratch}/tree").rename(ready)
    return ready


def _initramfs(kernel_tree: Path) -> Path:
    key = hashlib.sha256("\0".join((INIT, ANSWER, *MODULES)).encode()).hexdigest()[:16]
    ready = CACHE / f"initramfs-{key}"
    if ready.exists():
        return ready
    modules = next((kernel_tree / "lib/modules").iterdir()) / "kernel"
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        root = Path(scratch, "root")
        for name in ("bin", "modules", "dev", "proc", "sys", "tmp"):
            (root / name).mkdir(parents=True)
        shutil.copy(BUSYBOX, root / "bin/busybox")
        (root / "bin/sh").symlink_to("busybox")
        for number, module in enumerate(MODULES):
            for target in _unpacked(modules, module):
                shutil.copy(target, root / f"modules/{number:02}-{target.name}")
        for path, text in ((root / "init", INIT), (root / "bin/answer", ANSWER)):
            path.write_text(text)
            path.chmod(0o755)
        names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
        with Path(scratch, "image").open("wb") as image:
            subprocess.run(
                [str(BUSYBOX), "cpio", "-o", "-H", "newc"],
                cwd=root,
                input=names.encode(),
                stdout=image,
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=DOWNLOAD_TIMEOUT_S,
            )
        Path(scratch, "image").rename(ready)
    return ready


def _unpacked(modules: Path, module: str) -> Iterator[Path]:
    """The module's file; newer Debian kernels ship them packed, some are built in."""
    plain = modules / f"{module}.ko"
    packed = modules / f"{module}.ko.xz"
    if packed.exists() and not plain.exists():
        _run(["xz", "--decompress", "--keep", str(packed)])
    if plain.exists():
        yield plain


def _run(argv: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=DOWNLOAD_TIMEOUT_S)
    if done.returncode != 0:
        raise NoTestGuest(f"{argv[0]} {argv[1]}: {done.stderr.strip()}")
    return done.stdout
