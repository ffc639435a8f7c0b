"""The machines' volume: its size, and a real one made, mounted, filled, unmounted and mounted again."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.box import volume
from deploy.box.instance import Instance
from deploy.box.say import Problem, Say
from deploy.box.volume import GIB, wanted_gib
from hosts.disk.clone import clone

MIB = 1024**2


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Instance]:
    """A box with an empty folder for its machines; its volume is unmounted at the end."""
    instance = Instance.of(tmp_path)
    (instance.var / "host").mkdir(parents=True)
    yield instance
    volume.detach(instance, Say(out=io.StringIO()))


@pytest.mark.parametrize(
    ("setting", "free_gib", "gib"),
    [("", 80, 20), ("auto", 1000, 64), ("auto", 16, 4), ("auto", 15, 0), ("off", 80, 0), ("10", 80, 10)],
)
def test_its_size_follows_the_setting_and_the_room(setting: str, free_gib: int, gib: int) -> None:
    assert wanted_gib(setting, free_gib * GIB) == gib


@pytest.mark.parametrize("setting", ["0", "3", "-8", "8.5", "yes", "٨", "80"])
def test_a_setting_that_cannot_be_met_is_refused_in_words(setting: str) -> None:
    with pytest.raises(Problem, match="BURROW_MACHINE_VOLUME"):
        wanted_gib(setting, 80 * GIB)


@pytest.mark.root
def test_a_clone_on_it_takes_no_room_and_all_is_there_after_the_next_start(
    box: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(volume.SETTING, "4")
    monkeypatch.setattr(volume, "shares_blocks", lambda _folder: False)  # whatever this server's disk can do
    folder, say = box.var / "host", Say(out=io.StringIO())
    volume.attach(box, say)
    assert folder.is_mount()
    memory = folder / "memory"
    memory.write_bytes(b"m" * 16 * MIB)
    before = _free(folder)
    clone(memory, folder / "clone")
    assert before - _free(folder) < MIB
    volume.detach(box, say)
    assert not folder.is_mount()
    assert list(folder.iterdir()) == []
    volume.attach(box, say)
    volume.attach(box, say)  # a second deploy/up
    assert (folder / "clone").read_bytes() == b"m" * 16 * MIB


@pytest.mark.root
def test_what_was_kept_without_a_volume_stays_where_it_is(box: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(volume.SETTING, "4")
    (box.var / "host/machines").mkdir()
    volume.attach(box, Say(out=io.StringIO()))
    assert not (box.var / "host").is_mount()
    assert not volume.image_of(box).exists()


@pytest.mark.root
def test_a_volume_that_cannot_be_mounted_stops_the_start(box: Instance) -> None:
    volume.image_of(box).write_bytes(b"not a file system" * 1000)
    with pytest.raises(Problem, match="cannot be mounted"):
        volume.attach(box, Say(out=io.StringIO()))


def _free(folder: Path) -> int:
    seen = os.statvfs(folder)
    return seen.f_bfree * seen.f_frsize
