"""The table of limits: read from the code, the same in README and in --help, and no wait has a number of its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from hosts.__main__ import limits as host_limits
from tunnel.__main__ import limits as edge_limits
from tunnel.config import LIMITS
from tunnel.dial.table import Row, as_markdown, as_text, in_words, rows
from tunnel.edge.limits import Limits

ROOT = Path(__file__).parents[2]
PROGRAMS = pytest.mark.parametrize(("program", "limits"), [("tunnel", edge_limits()), ("hosts", host_limits())])
WAITS = {"timeout", "timeout_at", "wait_for", "settimeout", "call_later"}


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


@PROGRAMS
def test_every_limit_says_what_it_limits(program: str, limits: list[Row]) -> None:
    assert limits
    assert [f"{row.module}.{row.name}" for row in limits if not row.words] == []


@PROGRAMS
def test_readme_has_the_table_and_nothing_else_in_its_place(program: str, limits: list[Row]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition(f"<!-- limits:{program}:begin -->")[2].partition(f"<!-- limits:{program}:end -->")[0]
    assert table.strip() == as_markdown(limits).strip(), f"put the output of `python -m {program} --limits` there"


@PROGRAMS
def test_help_shows_the_table(program: str, limits: list[Row]) -> None:
    shown = run(program, "--help")
    assert shown.returncode == 0
    assert shown.stdout.endswith(as_text(limits))
    assert run(program, "--limits").stdout == as_markdown(limits)


@PROGRAMS
def test_other_arguments_are_refused(program: str, limits: list[Row]) -> None:
    refused = run(program, "--wake-timeout=9")
    assert refused.returncode == 64
    assert "usage" in refused.stderr


def test_whatever_the_operator_may_set_is_in_the_table_under_its_variable() -> None:
    assert {row.name: row.setting for row in edge_limits() if row.setting} == {n: v for n, (v, *_) in LIMITS.items()}
    assert set(LIMITS) == {field.name for field in fields(Limits)}


def test_no_wait_has_a_bare_number() -> None:
    """A number in the place of a time-out would be in no table."""
    found = []
    for file in [*(ROOT / "tunnel").rglob("*.py"), *(ROOT / "hosts").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [k.value for k in node.keywords if k.arg in {"timeout", "timeout_s", "deadline_s"}]
            if name in WAITS:
                given += node.args
            found += [f"{file}:{node.lineno}" for value in given if isinstance(value, ast.Constant) and value.value]
    assert found == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("A_S", 0.25, "250 ms"),
        ("A_S", 1.0, "1 s"),
        ("A_S", 90.0, "90 s"),
        ("A_S", 900.0, "15 min"),
        ("A_S", 86_400 * 7, "7 d"),
        ("A_PER_S", 50.0, "50 a second"),
        ("A_BYTES", 65_536, "64 KiB"),
        ("A_BYTES_MAX", 1000, "1,000 bytes"),
        ("A_MIB", range(64, 1025), "64 to 1024 MiB"),
        ("a_mib_in_all", 256, "256 MiB"),
        ("MAX_A", 20_000, "20,000"),
        ("MAX_A", 2**63 - 1, "2^63 - 1"),
    ],
)
def test_values_are_written_with_their_unit(name: str, value: object, words: str) -> None:
    assert in_words(name, value) == words


def test_a_package_that_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="no package"):
        rows("hosts_of_heaven")
