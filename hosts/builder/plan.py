"""From what was detected to the commands that install and build it. Pure.

Lock files and `packageManager` are obeyed; where they contradict each other the plan says so in the build log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hosts.builder.detect import LOCK_FILES, Detected, NodePackage

VENV = "/app/.venv"
NPM_FLAGS = "--no-audit --no-fund --loglevel=error"
YARN_1 = "yarn@1.22.22"
YARN_BERRY = "@yarnpkg/cli-dist@4"
# Which pnpm wrote a lock file of which version.
PNPM_BY_LOCK = {"5": "pnpm@7", "6": "pnpm@8", "9": "pnpm@10"}
PNPM_DEFAULT = "pnpm@10"
_MANAGER = re.compile(r"(npm|pnpm|yarn)@(\d+[0-9A-Za-z.-]*)")


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One command, run by `sh -c` in /app as the app's user."""

    phase: str  # installing, building
    command: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a build but unpacking and packing."""

    kind: str
    web: str
    steps: tuple[BuildStep, ...]
    notes: tuple[str, ...]


def plan(detected: Detected) -> Plan:
    """The commands for this app."""
    steps: list[BuildStep] = []
    notes = list(detected.notes)
    if detected.requirements:
        steps += [
            BuildStep("installing", f"uv venv --python /usr/bin/python3 {VENV}"),
            BuildStep("installing", f"uv pip install --python {VENV}/bin/python -r {detected.requirements}"),
        ]
    if detected.node is not None:
        node_steps, node_notes = _node(detected.node, detected.lock_head)
        steps += node_steps
        notes += node_notes
    return Plan(detected.kind, detected.web, tuple(steps), tuple(notes))


def _node(package: NodePackage, lock_head: str) -> tuple[list[BuildStep], list[str]]:
    notes: list[str] = []
    manager, tool = _manager(package, lock_head, notes)
    runner = "npm" if manager == "npm" and tool == "npm" else f"npx --yes {tool}"
    locked = any(LOCK_FILES[name] == manager for name in package.lock_files)
    steps: list[BuildStep] = []
    if package.has_dependencies:
        steps.append(BuildStep("installing", f"{runner} {_install(manager, tool, locked=locked)}"))
    if "build" in package.scripts:
        steps.append(BuildStep("building", _script(package, "build", runner, tool)))
    return steps, notes


def _script(package: NodePackage, name: str, runner: str, tool: str) -> str:
    """The script itself where nothing is lost by it, since a package manager takes seconds to start one.

    Hooks, and Yarn's own way of finding packages, need theirs.
    """
    if {f"pre{name}", f"post{name}"} & package.scripts.keys() or tool.startswith("@yarnpkg"):
        return f"{runner} run {name}"
    return package.scripts[name]


def _manager(package: NodePackage, lock_head: str, notes: list[str]) -> tuple[str, str]:
    """Which manager, and what to run it by: "pnpm", "pnpm@9.1.0"."""
    by_lock = LOCK_FILES[package.lock_files[0]] if package.lock_files else ""
    if len({LOCK_FILES[name] for name in package.lock_files}) > 1:
        notes.append(f"several lock files: {', '.join(package.lock_files)}; {package.lock_files[0]} is used")
    asked = _MANAGER.fullmatch(package.package_manager)
    if package.package_manager and not asked:
        notes.append(f"packageManager {package.package_manager[:60]!r} is not understood: it is not obeyed")
    if asked:
        manager, version = asked[1], asked[2]
        if by_lock and by_lock != manager:
            notes.append(
                f"packageManager asks for {asked[0]}, but the lock file here is {package.lock_files[0]} ({by_lock}): "
                f"installing with {manager}, without a lock file"
            )
        if manager == "yarn" and not version.startswith("1."):
            return manager, f"@yarnpkg/cli-dist@{version}"
        return manager, asked[0]
    if by_lock == "pnpm":
        version_line = re.search(r"lockfileVersion: '?(\d+)", lock_head)
        return "pnpm", PNPM_BY_LOCK.get(version_line[1] if version_line else "", PNPM_DEFAULT)
    if by_lock == "yarn":
        return "yarn", YARN_1 if "yarn lockfile v1" in lock_head else YARN_BERRY
    return "npm", "npm"


def _install(manager: str, tool: str, *, locked: bool) -> str:
    if manager == "npm":
        return f"{'ci' if locked else 'install'} {NPM_FLAGS}"
    if manager == "pnpm":
        return "install --frozen-lockfile" if locked else "install --no-frozen-lockfile"
    if tool.startswith("@yarnpkg"):
        return "install --immutable" if locked else "install"
    return "install --frozen-lockfile" if locked else "install"
