from __future__ import annotations

import os
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
