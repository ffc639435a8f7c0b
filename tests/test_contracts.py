"""Each wall between the houses holds: it stands in the code as it is, and falls over when somebody breaks it.

The violations are made in a copy of the sources; the checker is the one that `deploy/check` runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINT_TIMEOUT_S = 60
# contract -> (module that breaks it, the line that does)
VIOLATIONS = {
    "houses": ("tunnel/client.py", "import hosts.wire"),
    "control-hosts-wire": ("platform/control/clock.py", "import hosts.agent"),
    "control-tunnel-client": ("platform/control/clock.py", "import tunnel.edge"),
    "hosts-tunnel-dial": ("hosts/config.py", "import tunnel.client"),
    "edge-protected": ("hosts/config.py", "import tunnel.edge"),
    "wire-alone": ("hosts/wire/codec.py", "import hosts.config"),
    "no-django-below": ("hosts/config.py", "import django"),
    "pyroute2-in-net": ("hosts/config.py", "import pyroute2"),
    "boto3-in-store": ("hosts/config.py", "import boto3"),
    "proto-sans-io": ("tunnel/proto/__init__.py", "import time"),
    "apps-in-order": ("platform/control/accounts/apps.py", "import control.billing"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the three houses and their contracts."""
    copy = tmp_path_factory.mktemp("sources")
    for name in ("platform", "hosts", "tunnel"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "static"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(copy: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """Run the import checker there."""
    chosen = [part for name in contracts for part in ("--contract", name)]
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", *chosen],
        cwd=copy, capture_output=True, text=True, timeout=LINT_TIMEOUT_S, check=False,
        env={**os.environ, "PYTHONPATH": f"{copy / 'platform'}:{copy}"},
    )  # fmt: skip


def test_every_contract_is_kept(sources: Path) -> None:
    done = lint(sources)
    assert done.returncode == 0, done.stdout


def test_every_contract_has_a_violation_here() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    assert {contract["id"] for contract in configured} == set(VIOLATIONS)


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_violation_is_reported(sources: Path, contract: str) -> None:
    file, line = VIOLATIONS[contract]
    module = sources / file
    before = module.read_text(encoding="utf-8")
    module.write_text(f"{before}\n\n{line}\n", encoding="utf-8")
    try:
        done = lint(sources, contract)
    finally:
        module.write_text(before, encoding="utf-8")
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout
    assert line.removeprefix("import ") in done.stdout
