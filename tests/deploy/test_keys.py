"""Secrets: random, private, and made once."""

from __future__ import annotations

import stat
from pathlib import Path

from deploy.box import keys


def test_a_private_file_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old, and open to all")
    path.chmod(0o644)
    keys.write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


def test_no_two_passwords_are_alike() -> None:
    assert len({keys.new_password() for _ in range(50)}) == 50
    assert len(keys.new_password()) >= 16
