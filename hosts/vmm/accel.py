"""Whether this host's KVM really runs guests: found out by booting one, with a time limit, because a /dev/kvm that
opens proves nothing.

The answer is kept for this kernel, QEMU and boot of the host, so the agent's later starts do not ask again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path

from hosts.vmm.arguments import Accelerator
from hosts.vmm.jail import QEMU, kvm_usable
from hosts.vmm.process import current_boot_id
from hosts.vmm.protocol import VmmError

log = logging.getLogger(__name__)

ANSWER_FILE = "accelerator.json"
PROBE_TIMEOUT_S = 10.0  # with working KVM the kernel is through in under one second
PROBE_MEMORY_MIB = 128  # of the guest that shows whether KVM works

# Without an initramfs a kernel that booted ends by saying this; the panic then resets it, which ends QEMU.
BOOTED = b"Unable to mount root fs"
CMDLINE = "console=ttyS0 reboot=t panic=-1"


async def probe(choice: str, *, kernel: Path, folder: Path) -> Accelerator:
    """The accelerator to use: `choice` is "auto", "tcg" or "kvm"; VmmError if "kvm" is demanded and does not work."""
    if choice == Accelerator.TCG:
        return Accelerator.TCG
    key = await asyncio.to_thread(_key, kernel)
    answer = _remembered(folder / ANSWER_FILE, key)
    if answer is None:
        works = await boots(kernel, Accelerator.KVM)
        answer = Accelerator.KVM if works else Accelerator.TCG
        await asyncio.to_thread(_remember, folder / ANSWER_FILE, key, answer)
        log.info("accelerator: %s (KVM %s)", answer, "booted a guest" if works else "did not boot a guest")
    if choice == Accelerator.KVM and answer is not Accelerator.KVM:
        raise VmmError(f"KVM was demanded, but a guest did not boot under it within {PROBE_TIMEOUT_S} s")
    return answer


async def boots(
    kernel: Path, accelerator: Accelerator, *, timeout_s: float = PROBE_TIMEOUT_S, extra_cmdline: str = ""
) -> bool:
    """Whether our own kernel boots to its end under this accelerator in time."""
    if accelerator is Accelerator.KVM and not kvm_usable():
        return False
    process = await asyncio.create_subprocess_exec(
        str(QEMU),
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio"),
        *(
            "-machine",
            "microvm,acpi=on,rtc=on,x-option-roms=off",
            "-accel",
            str(accelerator),
            "-m",
            f"{PROBE_MEMORY_MIB}M",
        ),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"),
        *("-kernel", str(kernel), "-append", f"{CMDLINE} {extra_cmdline}".rstrip()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(timeout_s):
            said, _ = await process.communicate()
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return BOOTED in said


def _key(kernel: Path) -> str:
    """What the answer holds for."""
    qemu = QEMU.stat()
    parts = (current_boot_id(), os.uname().release, f"{qemu.st_size} {qemu.st_mtime_ns}")
    with kernel.open("rb") as file:
        kernel_hash = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256("\0".join((*parts, kernel_hash)).encode()).hexdigest()


def _remembered(path: Path, key: str) -> Accelerator | None:
    try:
        kept = json.loads(path.read_bytes())
        return Accelerator(kept["accelerator"]) if kept["key"] == key else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _remember(path: Path, key: str, answer: Accelerator) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump({"key": key, "accelerator": answer}, file)
    Path(file.name).rename(path)
