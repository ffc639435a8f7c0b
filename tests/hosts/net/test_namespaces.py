from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.net import namespaces

pytestmark = pytest.mark.root


@pytest.fixture
def name(instance: str) -> Iterator[str]:
    name = f"bw{instance}-77"
    yield name
    namespaces.delete(name)


def here() -> str:
    return str(Path("/proc/thread-self/ns/net").readlink())


def test_a_namespace_is_made_once_and_deleted_whole(name: str) -> None:
    assert not namespaces.exists(name)
    namespaces.create(name)
    inode = (namespaces.FOLDER / name).stat().st_ino
    namespaces.create(name)
    assert (namespaces.FOLDER / name).stat().st_ino == inode
    assert name in namespaces.names(name[:9])
    namespaces.delete(name)
    namespaces.delete(name)
    assert not (namespaces.FOLDER / name).exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As on a host that was just started: nobody has made a namespace yet."""
    monkeypatch.setattr(namespaces, "FOLDER", tmp_path / "netns")
    yield tmp_path / "netns"
    for path in (tmp_path / "netns", tmp_path / "netns/bw-ours"):  # what lies on top first
        while subprocess.run(["umount", "--lazy", path], capture_output=True, check=False).returncode == 0:
            pass


def add_as_ip_does(folder: Path) -> None:
    """What `ip netns add` does to its folder (iproute2, ip/ipnetns.c), before it makes a namespace."""
    shared = subprocess.run(["mount", "--make-rshared", folder], capture_output=True, check=False)
    if shared.returncode != 0:
        subprocess.run(["mount", "--rbind", folder, folder], check=True)
        subprocess.run(["mount", "--make-rshared", folder], check=True)


def test_somebody_elses_first_namespace_does_not_pin_ours(folder: Path) -> None:
    namespaces.create("bw-ours")
    add_as_ip_does(folder)
    namespaces.delete("bw-ours")
    assert list(folder.iterdir()) == []


def test_one_that_is_pinned_out_of_reach_is_no_obstacle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_keep_folder_deletable", lambda: None)  # as an earlier version left it
    namespaces.create("bw-ours")
    add_as_ip_does(folder)
    for _ in range(2):
        namespaces.delete("bw-ours")
        assert not namespaces.exists("bw-ours")
        namespaces.create("bw-ours")
        assert namespaces.exists("bw-ours")
    namespaces.delete("bw-ours")


def test_a_leftover_of_the_name_is_no_namespace_and_no_obstacle(name: str) -> None:
    namespaces.FOLDER.mkdir(exist_ok=True)
    (namespaces.FOLDER / name).touch()
    assert not namespaces.exists(name)
    with pytest.raises(FileNotFoundError):
        namespaces.open_namespace(name)
    namespaces.create(name)
    assert namespaces.exists(name)


async def test_work_is_done_inside_and_nobody_else_moves(name: str) -> None:
    namespaces.create(name)
    fd = namespaces.open_namespace(name)
    before = here()
    inside = await namespaces.inside_async(fd, here)
    assert inside != before
    assert inside == namespaces.inside(fd, here)
    assert here() == before
    others = {str(Path(f"/proc/self/task/{thread.native_id}/ns/net").readlink()) for thread in threading.enumerate()}
    assert others == {before}, "the threads that did it are home again"
    os.close(fd)


def test_what_goes_wrong_inside_is_told_outside(name: str) -> None:
    namespaces.create(name)
    fd = namespaces.open_namespace(name)
    with pytest.raises(ZeroDivisionError):
        namespaces.inside(fd, lambda: 1 // 0)
    os.close(fd)


def test_a_tap_stays_when_nobody_holds_it(name: str) -> None:
    namespaces.create(name)
    fd = namespaces.open_namespace(name)
    namespaces.inside(fd, lambda: namespaces.make_persistent_tap("tap0", 12345))
    tap = namespaces.open_tap(name, "tap0")
    with pytest.raises(OSError, match="busy"):
        namespaces.open_tap(name, "tap0")
    os.close(tap)
    os.close(namespaces.open_tap(name, "tap0"))
    os.close(fd)
