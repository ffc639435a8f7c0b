"""What kind of app a source tree is, from its file names and a few small files. Pure: no disk, no network, no clock.

Runs inside the builder machine. A Procfile says how to start and wins over every guess; the dependency files say what
to install; where nothing can be started the answer lists what was looked for and what is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

PYTHON_ENTRIES = ("app.py", "main.py", "server.py", "wsgi.py", "asgi.py", "run.py", "manage.py")
NODE_ENTRIES = (
    "server.js",
    "index.js",
    "app.js",
    "main.js",
    "server.mjs",
    "index.mjs",
    "src/server.js",
    "src/index.js",
)
STATIC_FOLDERS = (".", "public", "dist", "site", "docs")
# What site generators leave their pages in.
BUILT_FOLDERS = ("dist", "build", "out", "public", "_site", ".")
LOCK_FILES = {
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
}
MAX_NAMES_SHOWN = 12  # files, in "nothing to run"

Read = Callable[[str], str | None]


class NothingToRunError(Exception):
    """The tree holds nothing that can be started; the text says what was looked for and what was found."""


@dataclass(frozen=True, slots=True)
class NodePackage:
    """What a package.json says, as far as building goes."""

    scripts: dict[str, str]
    main: str
    has_dependencies: bool
    package_manager: str  # "pnpm@9.1.0", or "" where it names none
    lock_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Detected:
    """What was found: the kind, what installs its dependencies, what starts it."""

    kind: str  # python, node, static, procfile
    web: str  # the command
    requirements: str = ""  # requirements.txt or pyproject.toml
    node: NodePackage | None = None
    lock_head: str = ""  # how the Node lock file begins: its version is there
    notes: tuple[str, ...] = field(default=())  # said in the build log


def detect(files: Collection[str], read: Read) -> Detected:
    """The kind and its commands. `files`: paths from the top; `read`: a small text file, or None."""
    tree = frozenset(files)
    requirements = _requirements(tree, read)
    package = _package(tree, read)
    procfile = read("Procfile")
    notes = _notes(tree, read)
    if procfile is not None:
        web = _web_of(procfile)
        kind = "python" if requirements else "node" if package else "procfile"
        return Detected(kind, web, requirements, package, _lock_head(package, read), notes)
    tried = []
    if requirements or any(name in tree for name in PYTHON_ENTRIES):
        web = _python_web(tree, read)
        if web:
            return Detected("python", web, requirements, package, _lock_head(package, read), notes)
        tried.append(f"{requirements or 'Python files'} but none of {', '.join(PYTHON_ENTRIES)} to start")
    if package is not None:
        web = _node_web(package, tree)
        if web:
            return Detected("node", web, "", package, _lock_head(package, read), notes)
        tried.append(
            "package.json but no `start` or `build` script, no `main`, and none of " + ", ".join(NODE_ENTRIES[:4])
        )
    for folder in STATIC_FOLDERS:
        if (f"{folder}/index.html" if folder != "." else "index.html") in tree:
            return Detected("static", f"burrow-static {folder}", notes=notes)
    raise NothingToRunError(_nothing(tree, tried))


def _web_of(procfile: str) -> str:
    found = {}
    for line in procfile.splitlines():
        match = re.match(r"([A-Za-z0-9_-]+):\s*(.+)", line.strip())
        if match:
            found[match[1]] = match[2].strip()
    if "web" not in found:
        others = f"it names {', '.join(found)}" if found else "it names no process"
        raise NothingToRunError(f"the Procfile has no line `web: <command>`; {others}")
    return found["web"]


def _requirements(tree: frozenset[str], read: Read) -> str:
    if "requirements.txt" in tree:
        return "requirements.txt"
    project = read("pyproject.toml")
    # A pyproject without [project] often holds a linter's settings only.
    return "pyproject.toml" if project is not None and re.search(r"^\[project\]", project, re.MULTILINE) else ""


def _python_web(tree: frozenset[str], read: Read) -> str:
    for name in PYTHON_ENTRIES:
        if name not in tree:
            continue
        text = read(name) or ""
        if name == "manage.py":
            return "python manage.py runserver --noreload 0.0.0.0:$PORT"
        module = name.removesuffix(".py")
        flask = re.search(r"^(\w+)(?:\s*:\s*\w+)?\s*=\s*(?:flask\.)?Flask\(", text, re.MULTILINE)
        if flask and not re.search(r"\.run\(|__main__", text):
            return f"flask --app {module}:{flask[1]} run --host 0.0.0.0 --port $PORT"
        asgi = re.search(r"^(\w+)(?:\s*:\s*\w+)?\s*=\s*(?:\w+\.)?(?:FastAPI|Starlette)\(", text, re.MULTILINE)
        if asgi and not re.search(r"\.run\(|__main__", text):
            return f"uvicorn {module}:{asgi[1]} --host 0.0.0.0 --port $PORT"
        return f"python {name}"
    return ""


def _package(tree: frozenset[str], read: Read) -> NodePackage | None:
    if "package.json" not in tree:
        return None
    try:
        value = json.loads(read("package.json") or "")
    except ValueError as e:
        raise NothingToRunError(f"package.json is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise NothingToRunError("package.json is not a JSON object")
    scripts = value.get("scripts")
    main = value.get("main")
    manager = value.get("packageManager")
    return NodePackage(
        scripts={k: v for k, v in scripts.items() if isinstance(v, str)} if isinstance(scripts, dict) else {},
        main=main if isinstance(main, str) else "",
        has_dependencies=any(value.get(k) for k in ("dependencies", "devDependencies", "optionalDependencies")),
        package_manager=manager.partition("+")[0] if isinstance(manager, str) else "",  # drops the hash
        lock_files=tuple(name for name in LOCK_FILES if name in tree),
    )


def _node_web(package: NodePackage, tree: frozenset[str]) -> str:
    scripts = package.scripts
    if "start" in scripts:
        # Without npm around it: npm takes seconds to start and memory to stay. Only hooks need it.
        return "npm start" if {"prestart", "poststart"} & scripts.keys() else scripts["start"]
    for name in (package.main, *NODE_ENTRIES):
        if name and name.removeprefix("./") in tree:
            return f"node {name}"
    if "build" in scripts:
        return f"burrow-static {' '.join(BUILT_FOLDERS)}"
    return ""


def _lock_head(package: NodePackage | None, read: Read) -> str:
    if package is None or not package.lock_files:
        return ""
    return (read(package.lock_files[0]) or "")[:200]


def _notes(tree: frozenset[str], read: Read) -> tuple[str, ...]:
    notes = []
    for name in (".python-version", "runtime.txt", ".nvmrc", ".node-version"):
        asked = (read(name) or "").strip()
        if asked:
            notes.append(f"{name} asks for {asked[:40]}: apps run on the Python and Node of Burrow's base image")
    if "bun.lock" in tree or "bun.lockb" in tree:
        notes.append("bun.lock is not read: installing with npm")
    return tuple(notes)


def _nothing(tree: frozenset[str], tried: list[str]) -> str:
    top = sorted({name.split("/")[0] + ("/" if "/" in name else "") for name in tree})
    # A folder is named once, with its slash, whether or not the listing holds the folder itself.
    top = [n for n in top if n + "/" not in top]
    shown = ", ".join(top[:MAX_NAMES_SHOWN]) + (
        f" and {len(top) - MAX_NAMES_SHOWN} more" if len(top) > MAX_NAMES_SHOWN else ""
    )
    below = sorted(
        name
        for name in tree
        if name.count("/") == 1 and name.split("/")[1] in ("package.json", "requirements.txt", "Procfile")
    )
    looked_for = (
        "nothing to run: looked for a Procfile with a `web` line, requirements.txt or pyproject.toml with a Python "
        "file to start, package.json with a `start` script or a main file, and index.html"
    )
    parts = [looked_for]
    parts += [f"found {t}" for t in tried]
    parts.append(f"at the top there is {shown}" if top else "the push holds no file")
    if below:
        parts.append(f"{below[0]} is in a folder, and apps are built from the top of the repository")
    return "; ".join(parts)
