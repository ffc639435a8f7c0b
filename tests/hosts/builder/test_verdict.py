"""A builder machine's last word is a stranger's word."""

from __future__ import annotations

import pytest

from hosts.builder.verdict import Verdict, failed
from hosts.wire.commands import BuildPhase

GOOD: dict[str, object] = {"kind": "python", "command": "python app.py", "bytes": 8192}


def test_a_sound_verdict_is_read() -> None:
    assert Verdict.read(GOOD) == Verdict("python", "python app.py", 8192)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "rust"},
        {"command": ""},
        {"command": "a\0b"},
        {"command": "a\ud800b"},
        {"command": "x" * 5000},
        {"bytes": 0},
        {"bytes": -4096},
        {"bytes": 5000},
        {"bytes": "8192"},
        {"bytes": None},
    ],
)
def test_nonsense_is_not(change: dict[str, object]) -> None:
    assert Verdict.read({**GOOD, **change}) is None


def test_a_failure_keeps_to_our_codes_and_to_a_length() -> None:
    failure = failed("billing:refund", BuildPhase.BUILDING, "x" * 9999)
    assert failure.code == "build:lost"
    assert len(failure.message) == 2000
