"""A build from inside its machine: unpack, look, install, build, pack. A stranger's code runs as the app's user only.

Started by the guest agent with a job file; tells its news as JSON lines on standard output: {"phase"}, {"line"}, and at
the end {"done"} or {"failed"}. The machine is thrown away afterwards, so nothing is tidied up.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path

from hosts.builder import tree
from hosts.builder.detect import NothingToRunError, detect
from hosts.builder.plan import plan
from hosts.builder.steps import Failed, Runner, news

APP = Path("/app")
PACK = Path("/run/burrow/data/pack")
CA_FILE = Path("/etc/ssl/burrow-ca.pem")
APP_ID = 1000
EROFS_SUPERBLOCK_AT = 1024
EROFS_MAGIC = 0xE0F5E1E2
CA_VARIABLES = (
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "npm_config_cafile",
)
# uv reads its own names; an operator's settings are usually pip's.
UV_FROM_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
    "PIP_DEFAULT_TIMEOUT": "UV_HTTP_TIMEOUT",
}


def main() -> None:
    """Run the job named on the command line."""
    job = json.loads(Path(sys.argv[1]).read_text())
    runner = Runner(environment(job), APP, deadline=time.monotonic() + float(job["timeout_s"]))
    try:
        news({"done": _build(runner)})
    except Failed as e:
        news({"failed": {"code": e.code, "phase": e.phase, "message": e.message}})


def _build(runner: Runner) -> dict[str, object]:
    runner.enter("detecting")
    with _device("source").open("rb") as source:
        # tar refuses `..` and absolute names, and as the app's user it can make no device and own nothing of root's.
        runner.run(
            "tar -xf - --no-same-owner --no-same-permissions", stdin=source, quiet=True, failure="build:bad_source"
        )
    names = tree.listing(APP)
    _refuse_absent(names)
    try:
        found = detect(names, lambda name: tree.read_small(APP, name))
    except NothingToRunError as e:
        raise Failed("build:nothing_to_run", "detecting", str(e)) from None
    todo = plan(found)
    news({"line": f"This is a {todo.kind} app; it will be started with: {todo.web}"})
    for note in todo.notes:
        news({"line": f"Note: {note}"})
    for step in todo.steps:
        runner.enter(step.phase)
        news({"line": f"$ {step.command}"})
        runner.run(step.command)
    runner.enter("packing")
    runner.end_strays()
    output = _device("output")
    runner.run(
        f"mkfs.erofs -zlz4 --force-uid={APP_ID} --force-gid={APP_ID} {output} {PACK}",
        as_root=True,
        quiet=True,
        failure="build:pack",
        watched=output,
    )
    size = _image_bytes(output)
    return {"kind": todo.kind, "command": todo.web, "bytes": size}


def _refuse_absent(names: list[str]) -> None:
    pointers = tree.lfs_pointers(APP, names)
    if pointers:
        raise Failed(
            "build:lfs_pointer",
            "detecting",
            f"the push holds Git LFS pointers instead of files: {tree.shown(pointers)}; "
            "add the files themselves (`git lfs migrate export` or `git lfs untrack`)",
        )
    submodules = tree.empty_submodules(APP)
    if submodules:
        raise Failed(
            "build:submodule",
            "detecting",
            f"submodules are not fetched, so these folders are empty: {tree.shown(submodules)}; "
            "commit their files or install them as packages",
        )


def environment(job: dict[str, object]) -> dict[str, str]:
    """What install and build commands see: the operator's index settings and certificates, and nobody's secrets."""
    env = {
        "PATH": "/app/.venv/bin:/app/node_modules/.bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/home/app",
        "USER": "app",
        "LANG": "C.UTF-8",
        "CI": "1",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "UV_NO_PROGRESS": "1",
        "UV_NO_CACHE": "1",
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_COMPILE_BYTECODE": "1",  # else every cold boot compiles what the app imports
        "PYTHONUNBUFFERED": "1",
        "npm_config_cache": "/tmp/npm",  # noqa: S108 - the builder's own disk, thrown away with it
        "npm_config_update_notifier": "false",
    }
    given = job.get("env")
    operator = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
    env |= operator
    env |= {UV_FROM_PIP[name]: value for name, value in operator.items() if name in UV_FROM_PIP}
    bundle = job.get("ca_bundle")
    if isinstance(bundle, str) and bundle:
        CA_FILE.write_text(bundle)
        env |= dict.fromkeys(CA_VARIABLES, str(CA_FILE))
        env |= {"UV_SYSTEM_CERTS": "1"}
    return env


def _device(serial: str) -> Path:
    for path in Path("/sys/block").glob("vd*/serial"):
        if path.read_text().strip() == serial:
            return Path("/dev") / path.parent.name
    raise Failed("build:boot", "booting", f"the builder has no disk called {serial}")


def _image_bytes(output: Path) -> int:
    """How long the image is, from its own superblock."""
    with output.open("rb") as file:
        os.fsync(file.fileno())
        file.seek(EROFS_SUPERBLOCK_AT)
        block = file.read(128)
    magic, _, _, block_bits = struct.unpack_from("<IIIB", block)
    (blocks,) = struct.unpack_from("<I", block, 36)
    if magic != EROFS_MAGIC:
        raise Failed("build:pack", "packing", "mkfs.erofs left no image behind")
    return int(blocks << block_bits)


if __name__ == "__main__":
    main()
