"""Debian's cloud kernel and the few modules a guest needs, taken out of the package without installing it.

The package's own hooks (initramfs, boot loader) never run: the host's boot is none of our business. The kernel is
unpacked to its plain ELF: a guest under TCG would spend half a second on that at every boot, and QEMU starts faster
from it, resumes included. Modules come with a `modules.dep` of our own, worked out from each file's `depends=`.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from imaging.progress import BuildError, run, say

METAPACKAGE = "linux-image-cloud-amd64"
WANTED = (
    "virtio_mmio",
    "virtio_blk",
    "virtio_net",
    "erofs",
    "overlay",
    "virtio_rng",
)
# Part of the cache key: raise it when this file unpacks differently.
RECIPE = "3"


SETUP_SECTORS_AT = 0x1F1
PAYLOAD_AT = 0x248  # offset from the protected-mode code, and length (Linux boot protocol 2.08)
SECTOR_BYTES = 512
UNPACKERS = {
    b"\x02\x21\x4c\x18": ("lz4", "-dcq"),
    b"\x28\xb5\x2f\xfd": ("zstd", "-dcq"),
    b"\xfd7zXZ": ("xz", "-dcq"),
    b"\x1f\x8b": ("gzip", "-dcq"),
}
ELF = b"\x7fELF"
SIGNED = b"~Module signature appended~\n"


@dataclass(frozen=True, slots=True)
class KernelParts:
    """A bootable kernel, and a folder as under /lib/modules.

    `release` names it, `folder` holds modules and modules.dep.
    """

    image: Path
    release: str
    folder: Path


def make(cache: Path) -> KernelParts:
    """The kernel from the cache, or unpacked from the newest package."""
    package, version = _newest()
    key = hashlib.sha256("\0".join((RECIPE, package, version, *WANTED)).encode()).hexdigest()[:16]
    folder = cache / f"kernel-{key}"
    if not folder.exists():
        say(f"kernel: downloading {package} {version}")
        with tempfile.TemporaryDirectory(dir=cache, prefix=".kernel-") as work:
            _unpack(package, version, Path(work))
            (Path(work) / "done").rename(folder)
    else:
        say(f"kernel: {package} {version} (cached)")
    release = package.removeprefix("linux-image-")
    return KernelParts(folder / "vmlinuz", release, folder / "modules")


def _newest() -> tuple[str, str]:
    for refresh in (False, True):
        if refresh:
            say("kernel: refreshing the package lists")
            run(["apt-get", "update", "-q"], what="refreshing the package lists")
        shown = (
            run(["apt-cache", "show", "--no-all-versions", METAPACKAGE], what="looking for the kernel")
            if (refresh or _is_known())
            else ""
        )
        found = re.search(r"^Depends:.*?(linux-image-[0-9][^\s,]*) \(= ([^)]+)\)", shown, re.MULTILINE)
        if found:
            return found[1], found[2]
    raise BuildError(f"the package {METAPACKAGE} is not in the machine's package lists")


def _is_known() -> bool:
    return METAPACKAGE in run(["apt-cache", "search", "--names-only", f"^{METAPACKAGE}$"], what="searching packages")


def _unpack(package: str, version: str, work: Path) -> None:
    tree, done = work / "tree", work / "done"
    # apt would drop to its own user, who may not write into a root-owned folder.
    run(
        ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", f"{package}={version}"],
        what=f"downloading {package}",
        cwd=work,
    )
    (archive,) = work.glob("*.deb")
    run(["dpkg-deb", "-x", str(archive), str(tree)], what=f"unpacking {package}")
    (image,) = (tree / "boot").glob("vmlinuz-*")
    (done / "modules").mkdir(parents=True)
    (done / "vmlinuz").write_bytes(_plain(image.read_bytes()))
    (library,) = tree.glob("**/lib/modules/*")
    modules = _in_loading_order(library)
    for name, content in modules:
        (done / "modules" / f"{name}.ko").write_bytes(_unsigned(content))
    lines = [f"{name}.ko: {' '.join(f'{d}.ko' for d in _needed(name, dict(modules)))}".rstrip() for name, _ in modules]
    (done / "modules/modules.dep").write_text("\n".join(lines) + "\n")
    (done / "modules/wanted").write_text(" ".join(WANTED) + "\n")


def _plain(image: bytes) -> bytes:
    """The ELF inside a bzImage; the image itself where it cannot be taken out."""
    setup = (image[SETUP_SECTORS_AT] or 4) + 1
    offset, length = struct.unpack_from("<II", image, PAYLOAD_AT)
    start = setup * SECTOR_BYTES + offset
    # The last four bytes are the unpacked length, which the unpackers do not know.
    payload = image[start : start + length - 4]
    command = next((c for magic, c in UNPACKERS.items() if payload.startswith(magic)), None)
    if command is None or shutil.which(command[0]) is None:
        say(f"kernel: kept packed ({command[0] if command else 'unknown format'}); guests boot half a second slower")
        return image
    plain = subprocess.run(command, input=payload, capture_output=True, timeout=60, check=False).stdout
    return plain if plain.startswith(ELF) else image


def _unsigned(module: bytes) -> bytes:
    """Without Debian's signature.

    The guest would check it at every boot, and the file is vouched for by apt already.
    """
    if not module.endswith(SIGNED):
        return module
    end = len(module) - len(SIGNED)
    # struct module_signature: algorithm, hash, type, signer length, key id length, 3 pad bytes, signature length
    signer, key_id, signature = struct.unpack(">3xBB3xI", module[end - 12 : end])
    return module[: end - 12 - signer - key_id - signature]


def _needed(name: str, modules: dict[str, bytes]) -> list[str]:
    """Everything a module needs, nearest first, as depmod lists it."""
    found: list[str] = []
    for direct in _depends(modules[name]):
        if direct in modules:
            found += [n for n in (direct, *_needed(direct, modules)) if n not in found]
    return found


def _in_loading_order(library: Path) -> list[tuple[str, bytes]]:
    files = {_module_name(p): p for p in library.rglob("*.ko*")}
    builtin = {_module_name(Path(line)) for line in (library / "modules.builtin").read_text().splitlines()}
    order: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in order or name in builtin:
            return
        if name not in files:
            raise BuildError(f"the kernel has no module {name}")
        content = _read_module(files[name])
        for needed in _depends(content):
            add(needed)
        order[name] = content

    for wanted in WANTED:
        add(wanted)
    return list(order.items())


def _module_name(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


def _read_module(path: Path) -> bytes:
    if path.suffix == ".xz":  # Debian 13; busybox insmod wants them plain
        return lzma.decompress(path.read_bytes())
    return path.read_bytes()


def _depends(module: bytes) -> list[str]:
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    return [n.replace("-", "_") for n in found[1].decode().split(",") if n] if found else []
