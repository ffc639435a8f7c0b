"""The host's time stamp counter: measured once, and kept while it still holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.guest.tsc import host_tsc_khz


def test_two_measurements_agree_and_the_first_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "tsc_khz"
    first = host_tsc_khz(kept)
    assert 100_000 < first < 10_000_000
    assert host_tsc_khz(kept) == first
    assert kept.read_text() == f"{first}\n"


@pytest.mark.parametrize("text", ["", "nonsense", "1000"])
def test_what_does_not_hold_is_measured_anew(tmp_path: Path, text: str) -> None:
    kept = tmp_path / "tsc_khz"
    kept.write_text(text)
    assert host_tsc_khz(kept) > 100_000
