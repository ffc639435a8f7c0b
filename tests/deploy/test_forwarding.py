"""Forwarding is put back by the last box, and only if it was found off."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.box import forwarding


@pytest.fixture
def switch(tmp_path: Path) -> Path:
    path = tmp_path / "ip_forward"
    path.write_text("0\n")
    return path


def test_the_last_box_turns_it_off_again(tmp_path: Path, switch: Path) -> None:
    was_off, run = tmp_path / "was-off", tmp_path
    forwarding.remember(switch, was_off)
    switch.write_text("1\n")
    (run / "burrow-0a1b2c").mkdir()
    assert not forwarding.restore(run, switch, was_off)
    assert switch.read_text() == "1\n"
    (run / "burrow-0a1b2c").rmdir()
    assert forwarding.restore(run, switch, was_off)
    assert switch.read_text() == "0\n"
    assert not was_off.exists()


def test_what_was_on_before_us_stays_on(tmp_path: Path, switch: Path) -> None:
    switch.write_text("1\n")
    forwarding.remember(switch, tmp_path / "was-off")
    assert not forwarding.restore(tmp_path, switch, tmp_path / "was-off")
    assert switch.read_text() == "1\n"
