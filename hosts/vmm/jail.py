"""What QEMU sees of the host: its own program and libraries, one machine's memory and disks, and nothing else.

bubblewrap gives it a mount, pid, ipc, uts and network namespace of its own (its tap comes as an open descriptor) and
our seccomp filter; setpriv then takes away root and every capability, and QEMU adds a filter of its own. No folder of
the host is in it, so QEMU cannot make, name or follow anything there. The program and its libraries are copied once
into a folder of their own, so that an upgrade of the host's packages does not change a VMM under its snapshots unseen.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hosts.vmm import arguments
from hosts.vmm.arguments import Accelerator, Fd
from hosts.vmm.protocol import VmConfig, VmmError

QEMU = Path("/usr/bin/qemu-system-x86_64")
SETPRIV = Path("/usr/bin/setpriv")
BUBBLEWRAP = Path("/usr/bin/bwrap")
FIRMWARE = Path("/usr/share/qemu/bios-microvm.bin")
# Debian builds the TCG of each target as a module that QEMU opens by name.
MODULES = ("accel-tcg-x86_64.so",)
MODULE_FOLDERS = (Path("/usr/lib/x86_64-linux-gnu/qemu"), Path("/usr/lib/qemu"))
KVM_DEVICE = Path("/dev/kvm")

TOOL_TIMEOUT_S = 30.0  # a tool that prepares the jail

_GROUP_RW = stat.S_IRGRP | stat.S_IWGRP
_OTHER_RW = stat.S_IROTH | stat.S_IWOTH

_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


@dataclass(frozen=True, slots=True)
class Jail:
    """A jail's unchanging part: a folder that holds QEMU and what it needs to run."""

    root: Path
    qemu_version: str  # "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"

    def command(self, config: VmConfig, accelerator: Accelerator, *, instance: str, incoming: bool) -> list[str]:
        """The whole command line that starts QEMU for this machine inside the jail."""
        identity = str(config.uid)
        return [
            str(BUBBLEWRAP),
            # QEMU is pid 1 of its namespace: the pid bubblewrap reports is QEMU's own.
            *("--unshare-pid", "--as-pid-1", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
            *("--new-session", "--clearenv", "--hostname", "machine"),
            *("--info-fd", str(int(Fd.INFO)), "--block-fd", str(int(Fd.BLOCK)), "--seccomp", str(int(Fd.SECCOMP))),
            *(
                "--ro-bind",
                str(self.root / "usr"),
                "/usr",
                "--symlink",
                "usr/lib",
                "/lib",
                "--symlink",
                "usr/lib64",
                "/lib64",
            ),
            *(("--dev-bind", str(KVM_DEVICE), str(KVM_DEVICE)) if accelerator is Accelerator.KVM else ()),
            # bubblewrap would make them 0700, root's own.
            *("--perms", "0755", "--dir", str(arguments.MACHINE), "--perms", "0755", "--dir", str(arguments.DISKS)),
            # QEMU tries its image locks on it, and does without locks where there is none.
            *("--perms", "0755", "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"),
            *("--bind", str(memory_file(config)), str(arguments.MEMORY)),
            *("--ro-bind", str(config.boot.kernel), str(arguments.KERNEL)),
            *("--ro-bind", str(config.boot.initramfs), str(arguments.INITRAMFS)),
            *_disk_binds(config),
            *("--remount-ro", "/", "--chdir", "/"),
            *("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),
            *("--", str(SETPRIV), "--reuid", identity, "--regid", identity, *_groups(accelerator)),
            *("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"),
            *("--", str(QEMU), *arguments.command(config, accelerator, instance=instance, incoming=incoming)),
        ]


def kvm_usable() -> bool:
    """Whether a process without privileges may be given /dev/kvm, by its group or because everybody may have it."""
    try:
        mode = KVM_DEVICE.stat().st_mode
    except FileNotFoundError:
        return False
    return mode & _GROUP_RW == _GROUP_RW or mode & _OTHER_RW == _OTHER_RW


def memory_file(config: VmConfig) -> Path:
    """Where a machine's memory lies."""
    return config.folder / "memory"


def prepare(folder: Path) -> Jail:
    """Make, or find made, the jail root for the QEMU now installed, in `folder` (blocking)."""
    for program, package in ((QEMU, "qemu-system-x86"), (BUBBLEWRAP, "bubblewrap"), (SETPRIV, "util-linux")):
        if not program.exists():
            raise VmmError(f"{program} is missing: install {package}")
    version = _run([str(QEMU), "--version"]).splitlines()[0].removeprefix("QEMU emulator version ")
    wanted = _wanted_files()
    key = hashlib.sha256("\n".join(f"{to} {_identity(at)}" for to, at in sorted(wanted.items())).encode()).hexdigest()[
        :16
    ]
    root = folder / key
    if not root.is_dir():
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
            made = Path(scratch, "root")
            for to, at in wanted.items():
                target = made / to.relative_to("/")
                target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                shutil.copyfile(at, target)
                target.chmod(0o755 if os.access(at, os.X_OK) else 0o644)
            for path in (made, *made.rglob("*/")):
                path.chmod(0o755)  # whatever the umask: the machine's uid must get at its program
            made.rename(root)
    for old in folder.iterdir():
        if old != root:  # of an earlier QEMU, or half made; one that still runs has what it needs in memory
            shutil.rmtree(old, ignore_errors=True)
    return Jail(root=root, qemu_version=version)


def _wanted_files() -> dict[Path, Path]:
    """Path in the jail -> file on the host."""
    programs = [QEMU, SETPRIV]
    programs += [folder / module for folder in MODULE_FOLDERS for module in MODULES if (folder / module).exists()]
    wanted = {program: program for program in programs}
    if FIRMWARE.exists():
        wanted[FIRMWARE] = FIRMWARE.resolve()
    for program in programs:
        wanted |= libraries(program)
    return wanted


def libraries(program: Path) -> dict[Path, Path]:
    """What the loader loads with it: path in the jail -> file on the host."""
    found = (Path(library) for library in _LIBRARY.findall(_run(["ldd", str(program)])))
    # /lib and /lib64 are links into /usr on every Debian we run on, and in the jail.
    return {path if path.is_relative_to("/usr") else Path(f"/usr{path}"): path.resolve() for path in found}


def _identity(path: Path) -> str:
    found = path.stat()
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _groups(accelerator: Accelerator) -> tuple[str, ...]:
    """None, but for the device that runs the guest."""
    if accelerator is Accelerator.KVM:
        return ("--groups", str(KVM_DEVICE.stat().st_gid))
    return ("--clear-groups",)


def _disk_binds(config: VmConfig) -> list[str]:
    binds: list[str] = []
    for disk in config.disks:
        binds += ["--ro-bind" if disk.read_only else "--bind", str(disk.path), str(arguments.DISKS / disk.serial)]
    return binds


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        raise VmmError(f"{argv[0]}: {e}") from None
    return done.stdout
