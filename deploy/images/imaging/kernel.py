"""Debian's cloud kernel and the few modules a guest needs, taken out of the package without installing it.

The package's own hooks (initramfs, boot loader) never run: the host's boot is none of our business. Modules come out in
an order in which `insmod` can load them one after the other, worked out from each file's own `depends=`.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import shutil
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
RECIPE = "2"


@dataclass(frozen=True, slots=True)
class KernelParts:
    """A bootable kernel and its modules, in loading order."""

    image: Path
    modules: tuple[Path, ...]


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
    return KernelParts(folder / "vmlinuz", tuple(sorted((folder / "modules").iterdir())))


def _newest() -> tuple[str, str]:
    for refresh in (False, True):
        if refresh:
            say("kernel: refreshing the package lists")
            run(["apt-get", "update", "-q"], what="refreshing the package lists")
        shown = run(["apt-cache", "show", "--no-all-versions", METAPACKAGE], what="looking for the kernel") if (
            refresh or _is_known()
        ) else ""
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
    shutil.copyfile(image, done / "vmlinuz")
    (library,) = tree.glob("**/lib/modules/*")
    for position, (name, content) in enumerate(_in_loading_order(library)):
        (done / "modules" / f"{position:02}-{name}.ko").write_bytes(content)


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
