"""The spool, the tickets, the repositories, and what git sees of the outside."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from django.conf import settings

from control import clock
from control.applications.models import App
from control.errors import UserError
from control.sources import repositories, spool, tasks, tickets
from tests.platform import rows


def test_a_source_tells_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BEAT_EVERY_S", 0)
    push_id, beats = uuid.uuid4(), []
    spool.source_path(push_id).write_bytes(b"abc")
    with spool.open_source(push_id, beat=lambda: beats.append(1)) as file:
        assert file.read(2) + file.read() == b"abc"
    assert len(beats) == 2
    spool.remove_source(push_id)
    spool.remove_source(push_id)
    with pytest.raises(FileNotFoundError), spool.open_source(push_id, beat=lambda: None):
        """Never reached."""


def test_what_was_left_behind_is_dropped_after_a_day() -> None:
    old, new, part = (Path(settings.SPOOL) / n for n in ("old.tar", "new.tar", "old.part"))
    for path in (old, new, part):
        path.write_bytes(b"x")
    day_ago = time.time() - spool.KEEP_S - 1
    for path in (old, part):
        os.utime(path, (day_ago, day_ago))
    assert spool.clean() == 2
    assert [p.exists() for p in (old, new, part)] == [False, True, False]
    new.unlink()


def test_a_ticket_says_who_and_cannot_be_made_up() -> None:
    ticket = tickets.Ticket(uuid.uuid4(), uuid.uuid4(), 7)
    secret = tickets.issue(ticket)
    assert tickets.read(secret) == ticket
    for forged in ("", secret[:-1], secret.swapcase(), "x" + secret):
        with pytest.raises(UserError):
            tickets.read(forged)


@pytest.mark.django_db
def test_a_repository_is_named_by_nothing_a_user_chose() -> None:
    app = rows.app()
    path = repositories.ensure(app)
    assert path == repositories.ensure(app)
    assert path.parent == Path(settings.REPOS)
    assert app.slug not in path.name
    assert not (path / "hooks").exists()
    repositories.remove(app)
    repositories.remove(app)
    assert not path.exists()


@pytest.mark.django_db
def test_a_deleted_apps_repository_goes_though_nobody_was_told() -> None:
    kept, deleted = repositories.ensure(rows.app()), repositories.ensure(gone := rows.app())
    half = deleted.with_name(f"{deleted.name}.x.gone")
    half.mkdir()
    App.objects.filter(id=gone.id).update(deleted_at=clock.now())
    tasks.clean()
    assert kept.exists()
    assert not deleted.exists()
    assert not half.exists()
    tasks.clean()


def test_git_sees_no_configuration_but_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "evil"))
    (tmp_path / "evil").write_text("[core]\n\thooksPath = /evil\n")
    listed = subprocess.run(
        ["git", "config", "--list", "--show-origin"],
        env=repositories.git_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    assert {line.split("\t")[0] for line in listed.splitlines()} == {"command line:"}
    assert f"core.hookspath={repositories.HOOKS}" in listed
    assert "receive.fsckobjects=true" in listed


def test_the_hook_is_one_static_program() -> None:
    assert [p.name for p in repositories.HOOKS.iterdir() if p.name != "__pycache__"] == ["pre-receive"]
    hook = repositories.HOOKS / "pre-receive"
    assert hook.stat().st_mode & 0o111
    assert hook.read_text().startswith("#!/usr/bin/python3 -I\n")
