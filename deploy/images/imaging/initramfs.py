"""The initramfs: busybox, kernel modules, `hosts/guest/init`, the responder, and the guest agent's Python files, ready
compiled.

Small and uncompressed, because a guest under TCG would spend longer unpacking than the host does reading. Rebuilt every
time (it takes a moment), byte for byte the same from the same files.
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from imaging.kernel import KernelParts
from imaging.progress import BuildError, run, say

APPLETS = ("sh", "mount", "modprobe", "mkdir", "cp", "chown", "ip", "arp", "switch_root", "reboot", "cat")
MOUNT_POINTS = ("dev", "proc", "sys", "base", "release", "data", "root")
# What runs inside a guest, as the repository names it.
GUEST_PYTHON = (
    "hosts/guest/agent/*.py",
    "hosts/builder/detect.py",
    "hosts/builder/plan.py",
    "hosts/builder/steps.py",
    "hosts/builder/tree.py",
    "hosts/builder/worker.py",
)
COMPILER = Path("/usr/bin/python3")
ALIGNMENT = 4


def make(repository: Path, kernel: KernelParts, guest_python: str) -> bytes:
    """A cpio archive (newc) for `-initrd`."""
    with tempfile.TemporaryDirectory(prefix="burrow-initramfs-") as work:
        tree = Path(work)
        for folder in (*MOUNT_POINTS, "bin", "lib/modules", "burrow/bin", "burrow/lib"):
            (tree / folder).mkdir(parents=True)
        shutil.copyfile(_busybox(), tree / "bin/busybox")
        for applet in APPLETS:
            (tree / "bin" / applet).symlink_to("busybox")
        shutil.copytree(kernel.folder, tree / "lib/modules" / kernel.release)
        guest = repository / "hosts/guest"
        shutil.copyfile(guest / "init/init", tree / "init")
        shutil.copyfile(guest / "init/pid1", tree / "burrow/pid1")
        for program in (guest / "init/bin").iterdir():
            shutil.copyfile(program, tree / "burrow/bin" / program.name)
        _compile_c(guest / "responder.c", tree / "burrow/responder")
        _copy_python(repository, tree / "burrow/lib")
        _compile(tree / "burrow/lib", guest_python)
        executable = {
            *(tree / "init", tree / "bin/busybox", tree / "burrow/pid1", tree / "burrow/responder"),
            *(tree / "burrow/bin").iterdir(),
        }
        archive = b"".join(_entries(tree, executable))
    say(f"initramfs: {len(archive) >> 10} KiB")
    return archive


def _busybox() -> Path:
    for candidate in ("/bin/busybox", "/usr/bin/busybox"):
        if Path(candidate).exists():
            # The dynamic package has the same path and would start nothing in an empty initramfs.
            if b"/ld-linux" in Path(candidate).read_bytes():
                break
            return Path(candidate)
    raise BuildError("no statically linked busybox found (busybox-static in deploy/apt.txt)")


def _compile_c(source: Path, program: Path) -> None:
    """A program without any library, so that the smallest compiler there is will do."""
    run(["tcc", "-nostdlib", "-static", "-Wall", "-Werror", "-o", str(program), str(source)], what="compiling C")


def _copy_python(repository: Path, library: Path) -> None:
    for pattern in GUEST_PYTHON:
        for file in sorted(repository.glob(pattern)):
            target = library / file.relative_to(repository)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    for folder in [d for d in library.rglob("*") if d.is_dir()]:
        # Empty: what the host's packages say of themselves is no guest's business.
        (folder / "__init__.py").write_text("")


def _compile(library: Path, guest_python: str) -> None:
    """Byte code that is never checked against its source: compiling under TCG would cost every boot a second."""
    version = _version_of(COMPILER)
    if version != guest_python:
        say(f"initramfs: not compiled ahead (guest Python {guest_python}, here {version or 'none'})")
        return
    run(
        [
            str(COMPILER),
            "-m",
            "compileall",
            "-q",
            "--invalidation-mode",
            "unchecked-hash",
            "-s",
            str(library),
            "-p",
            "/run/burrow/lib",
            str(library),
        ],
        what="compiling the guest agent",
    )


def _version_of(python: Path) -> str:
    try:
        said = subprocess.run([python, "-V"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.match(r"Python (\d+\.\d+)", said)
    return found[1] if found else ""


def _entries(tree: Path, executable: set[Path]) -> Iterator[bytes]:
    """newc entries with fixed owners, times and inode numbers."""
    number = 1
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_symlink():
            mode, content = stat.S_IFLNK | 0o777, bytes(path.readlink())
        elif path.is_dir():
            mode, content = stat.S_IFDIR | 0o755, b""
        else:
            mode, content = stat.S_IFREG | (0o755 if path in executable else 0o644), path.read_bytes()
        yield _entry(number, name, mode, content)
        number += 1
    yield _entry(number, "dev/console", stat.S_IFCHR | 0o600, b"", device=(5, 1))
    yield _entry(number + 1, "TRAILER!!!", 0, b"")


def _entry(number: int, name: str, mode: int, content: bytes, *, device: tuple[int, int] = (0, 0)) -> bytes:
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0"
    return _padded(header) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGNMENT)
