"""The shape of the repository, held by tests: what stands at the top, what may import what, which file has which test.

Each rule here is one that somebody broke, or would break without noticing.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
GIT_TIMEOUT_S = 30

TOP_LEVEL = {
    "manage.py", "pyproject.toml", "README.md", "platform", "hosts", "tunnel", "templates", "tests", "deploy",
    "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", ".gitignore", ".ci", ".pre-commit-config.yaml",
}  # fmt: skip
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base_utils"}
MAX_LINES = 400
# Source that has no test file of its own name, and the one where it is tested instead.
TESTED_ELSEWHERE = {
    "hosts/guest/answers.py": "tests/hosts/guest/test_client.py",
    "hosts/vmm/protocol.py": "tests/hosts/vmm/test_qemu.py",
    "platform/control/errors.py": "tests/platform/api/test_api.py",
    "platform/control/worker.py": "tests/platform/sources/test_push.py",
    "platform/control/wsgi.py": "tests/platform/sources/test_push.py",
    "tunnel/dial/data.py": "tests/tunnel/test_splice.py",
    "tunnel/dial/limits.py": "tests/tunnel/test_dialer.py",
    "tunnel/dial/target.py": "tests/tunnel/test_splice.py",
    "tunnel/edge/control.py": "tests/tunnel/test_client.py",
    "tunnel/edge/core.py": "tests/tunnel/test_exchange.py",
    "tunnel/edge/hold.py": "tests/tunnel/test_wake.py",
    "tunnel/edge/hosts.py": "tests/tunnel/test_links.py",
    "tunnel/edge/limits.py": "tests/tunnel/test_wake.py",
    "tunnel/edge/pipes.py": "tests/tunnel/test_exchange.py",
    "tunnel/edge/server.py": "tests/tunnel/test_listener.py",
    "tunnel/edge/upgraded.py": "tests/tunnel/test_upgrade.py",
    "tunnel/proto/authority.py": "tests/tunnel/test_request.py",
    "tunnel/proto/body.py": "tests/tunnel/test_response.py",
    "tunnel/proto/errors.py": "tests/tunnel/test_request.py",
    "tunnel/proto/fields.py": "tests/tunnel/test_request.py",
    "tunnel/proto/forward.py": "tests/tunnel/test_response.py",
}
RUNS_ON_BARE_PYTHON = ("hosts/wire", "tunnel/wire", "hosts/guest/agent", "deploy/box")
SHELL = re.compile(r"\bshell\s*=\s*True|\bos\.(?:system|popen)\(|\bsubprocess\.getoutput\(")


def tracked() -> list[Path]:
    """The files of this checkout, new ones included, ignored ones not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, timeout=GIT_TIMEOUT_S,
    ).stdout.decode()  # fmt: skip
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]


def sources(*folders: str) -> list[Path]:
    """Our Python files below these folders; generated migrations and users' sample apps are not ours."""
    return [
        path for path in tracked()
        if path.suffix == ".py" and path.parts[0] in folders
        and "migrations" not in path.parts and path.parts[:2] not in {("tests", "apps"), ("deploy", "sample")}
    ]  # fmt: skip


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_nothing_new_stands_at_the_top() -> None:
    assert {path.parts[0] for path in tracked()} <= TOP_LEVEL


def test_platform_is_a_source_root_and_not_a_package() -> None:
    assert [str(path) for path in tracked() if path.parent == Path("platform")] == []
    import platform  # noqa: PLC0415 - the point is which one this is

    assert platform.__file__ is not None
    assert ROOT not in Path(platform.__file__).parents


def test_no_file_has_a_vague_name() -> None:
    assert [str(p) for p in tracked() if p.suffix == ".py" and p.stem in VAGUE_NAMES] == []


def test_only_tests_itself_is_a_package_of_tests() -> None:
    allowed = {Path("tests/__init__.py"), Path("tests/bench/__init__.py")}  # bench is run with `python -m tests.bench`
    assert {
        p for p in tracked() if p.parts[0] == "tests" and p.name == "__init__.py" and "apps" not in p.parts
    } == allowed


def test_no_file_grows_past_its_noun() -> None:
    too_long = {
        str(path): lines
        for path in sources("platform", "hosts", "tunnel", "deploy")
        if (lines := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert too_long == {}


def test_nothing_goes_through_a_shell() -> None:
    found = [
        str(path)
        for path in sources("platform", "hosts", "tunnel", "deploy")
        if SHELL.search((ROOT / path).read_text())
    ]
    assert found == []


@pytest.mark.parametrize("folder", RUNS_ON_BARE_PYTHON)
def test_standard_library_only(folder: str) -> None:
    own = folder.replace("/", ".")
    inside = [p for p in sources(folder.split("/")[0]) if p.is_relative_to(folder)]
    assert inside
    foreign = {
        f"{path}: {name}"
        for path in inside
        for name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not f"{name}.".startswith(f"{own}.")
    }
    assert foreign == set()


def test_every_source_file_has_a_test_file_or_a_reason() -> None:
    test_stems = {
        p.stem.removeprefix("test_") for p in tracked() if p.parts[0] == "tests" and p.name.startswith("test_")
    }
    untested = [
        str(path)
        for path in sources("platform", "hosts", "tunnel")
        if path.name not in {"__init__.py", "__main__.py", "apps.py", "admin.py", "urls.py"}
        and path.stem not in test_stems
        and f"{path.parent.name}_{path.stem}" not in test_stems
        and path.parent.name not in test_stems
        and str(path) not in TESTED_ELSEWHERE
    ]
    assert untested == []


def test_whatever_is_tested_elsewhere_is_there_and_so_is_its_test() -> None:
    assert [name for pair in TESTED_ELSEWHERE.items() for name in pair if not (ROOT / name).exists()] == []


def test_every_setting_is_in_deploy_env_and_the_other_way_round() -> None:
    documented = set(re.findall(r"^(BURROW_[A-Z_]+)=", (ROOT / "deploy/env").read_text(encoding="utf-8"), re.MULTILINE))
    read: set[str] = set()
    for path in [*sources("platform", "hosts", "tunnel", "deploy"), Path("deploy/images/build")]:
        # Inside a guest other variables of ours exist: they are the app's, not the operator's.
        if not path.is_relative_to("hosts/guest"):
            read |= set(re.findall(r"[\"'](BURROW_[A-Z_]+)[\"']", (ROOT / path).read_text(encoding="utf-8")))
    # A secret is read from NAME or from the file that NAME_FILE names; the file is what we document.
    read = {name if f"{name}_FILE" not in documented else f"{name}_FILE" for name in read} - GUESTS
    assert read == documented


GUESTS = {"BURROW_PUBLIC_HOST", "BURROW_AFTER_RESUME"}  # set inside machines, for apps


def test_the_lock_has_every_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for lock, wanted in (
        ("requirements.lock", project["project"]["dependencies"]),
        ("requirements-test.lock", project["project"]["dependencies"] + project["dependency-groups"]["dev"]),
    ):
        text = (ROOT / "deploy" / lock).read_text(encoding="utf-8")
        pins = {canonicalize_name(n): v for n, v in re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^\s;]+)", text, re.M)}
        unmet = [w for w in map(Requirement, wanted) if pins.get(canonicalize_name(w.name), "") not in w.specifier]
        assert unmet == [], lock
        assert "://" not in text, f"{lock} names an address: indexes are the operator's to choose"


def test_the_changelog_has_the_headings_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert [v for v in versions[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", v)] == []
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_every_decision_says_what_and_why() -> None:
    pages = sorted((ROOT / "deploy/decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Decision", "Why", "What it costs", "When to think again"], page.name


def test_no_path_or_registry_of_the_makers_machines_is_in_a_file() -> None:
    # Put together here, or this file would be the first to fail.
    forbidden = re.compile(
        "|".join(("/wo" + "rk/", "/ro" + r"ot/(?!x)", "deb\\.deb" + "ian\\.org", "registry\\.npm" + "js"))
    )
    allowed = {
        Path("deploy/box/resolver.py"),  # root's own pip and npm settings
        Path("hosts/guest/init/init"),  # where the initramfs mounts the guest's root
    }
    found = [
        f"{path}: {match[0]}"
        for path in tracked()
        if path not in allowed
        and path.suffix in {".py", ".sh", ".md", ".toml", ".txt", ".yaml", ".service", ""}
        and (match := forbidden.search((ROOT / path).read_text(encoding="utf-8", errors="replace")))
    ]  # fmt: skip
    assert found == []


@pytest.mark.django_db
def test_every_change_of_a_model_has_its_migration() -> None:
    from django.core.management import call_command  # noqa: PLC0415 - not before Django is set up

    call_command("makemigrations", "--check", "--dry-run")
