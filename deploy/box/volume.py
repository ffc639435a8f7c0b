"""A volume for the machines' files where the server's disk cannot share blocks between files (no reflinks, as on ext4).

It is an XFS file system in one file, var/machines.xfs, mounted at var/host: a checkpoint then clones memory and disk in
a millisecond instead of copying them, and the clone takes room only for what changes later. The file is allocated in
full when it is made: a file system that ran out of the room it was promised would lose what it holds. Once the file is
there it is always mounted, or deploy/up ends: a host agent without it would think its machines lost.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from deploy.box.instance import Instance
from deploy.box.say import Problem, Say

GIB = 1024**3
SETTING = "BURROW_MACHINE_VOLUME"
SHARE_OF_FREE = 4  # a quarter of what is free when it is made
LARGEST_GIB = 64
SMALLEST_GIB = 4
PRIVATE = 0o700
COMMAND_TIMEOUT_S = 60
_FICLONE = 0x40049409


def wanted_gib(setting: str, free_bytes: int) -> int:
    """How big a volume to make, in GiB; 0 means none. A Problem if the setting says nothing sensible."""
    if setting == "off":
        return 0
    if setting in ("", "auto"):
        gib = min(LARGEST_GIB, free_bytes // GIB // SHARE_OF_FREE)
        return gib if gib >= SMALLEST_GIB else 0
    if not setting.isascii() or not setting.isdigit() or int(setting) < SMALLEST_GIB:
        raise Problem(f"{SETTING} is {setting!r}: auto, off, or a size of at least {SMALLEST_GIB} (GiB)")
    if int(setting) * GIB > free_bytes - GIB:
        raise Problem(f"{SETTING} asks for {setting} GiB, and {free_bytes / GIB:.1f} are free")
    return int(setting)


def attach(instance: Instance, say: Say) -> None:
    """Mount the volume; make it first where it helps and nothing was kept without it."""
    folder, image = instance.var / "host", image_of(instance)
    if folder.is_mount():
        return
    if not image.exists():
        gib = wanted_gib(os.environ.get(SETTING, ""), shutil.disk_usage(folder).free)
        if not gib or any(folder.iterdir()) or shares_blocks(folder):
            return
        with say.step(f"making a volume of {gib} GiB for the machines' files, whose blocks they can share"):
            try:
                _make(image, gib)
            except (OSError, subprocess.SubprocessError) as e:
                say.line(f"    cannot be made here ({_reason(e)}): checkpoints will be whole copies")
                return
    try:
        _mount(image, folder)
    except (OSError, subprocess.SubprocessError) as e:
        raise Problem(f"the machines' volume {image} cannot be mounted at {folder}: {_reason(e)}") from None
    folder.chmod(PRIVATE)


def detach(instance: Instance, say: Say) -> None:
    """Unmount it, with everything written; nothing uses it any more. What is still busy is left to `reclaim`."""
    folder = instance.var / "host"
    if folder.is_mount():
        try:
            _run("umount", str(folder))
        except (OSError, subprocess.SubprocessError) as e:
            say.line(f"    the machines' volume is still in use: {_reason(e)}")


def image_of(instance: Instance) -> Path:
    """The file that holds the volume."""
    return instance.var / "machines.xfs"


def shares_blocks(folder: Path) -> bool:
    """Whether files in this folder can share blocks (FICLONE, see ioctl_ficlone(2))."""
    one, other = folder / ".reflink.a", folder / ".reflink.b"
    try:
        one.write_bytes(b"x" * 4096)
        with one.open("rb") as source, other.open("wb") as target:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    finally:
        one.unlink(missing_ok=True)
        other.unlink(missing_ok=True)
    return True


def _make(image: Path, gib: int) -> None:
    scratch = image.with_suffix(".new")
    try:
        with scratch.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            os.posix_fallocate(file.fileno(), 0, gib * GIB)
        _run("mkfs.xfs", "-q", "-f", "-m", "reflink=1", str(scratch))
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        scratch.replace(image)
    finally:
        scratch.unlink(missing_ok=True)


def _mount(image: Path, folder: Path) -> None:
    # An earlier mount that went lazily may hold the file still: two mounts of one file would ruin it.
    if held := _run("losetup", "--noheadings", "--output", "NAME", "--associated", str(image)).split():
        device = held[0]
    else:
        # direct-io: what the volume caches is not cached a second time below it.
        device = _run("losetup", "--find", "--show", "--direct-io=on", str(image)).strip()
    try:
        _run("mount", "-t", "xfs", "-o", "noatime,nodev,nosuid", device, str(folder))
    finally:
        _run("losetup", "--detach", device)  # takes effect when the last user is gone: the mount, if there is one


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True).stdout


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return str(error.stderr).strip().splitlines()[-1] if str(error.stderr).strip() else str(error)
    return str(error)
