"""The route table: newer replaces older, whole, and survives on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunnel.edge.router import Router
from tunnel.wire import Route, RouteTable, WireError

BLOG = Route("blog.localhost", "m1", "h1", "blog")
SHOP = Route("shop.localhost", "m2", "h1", "shop", may_wake=False)


async def test_a_newer_table_replaces_the_older_whole(tmp_path: Path) -> None:
    router = Router(tmp_path / "x" / "routes.json")
    assert await router.publish(RouteTable(1, (BLOG,)).encode()) == 1
    assert await router.publish(RouteTable(2, (SHOP,)).encode()) == 2
    assert router.find("blog.localhost") is None
    assert router.find("shop.localhost") == SHOP
    assert router.of_machine("m2") == SHOP


@pytest.mark.parametrize("generation", [1, 2])
async def test_a_table_that_is_not_newer_changes_nothing(tmp_path: Path, generation: int) -> None:
    router = Router(tmp_path / "routes.json")
    await router.publish(RouteTable(2, (BLOG,)).encode())
    assert await router.publish(RouteTable(generation, ()).encode()) == 2
    assert router.find("blog.localhost") == BLOG


async def test_the_last_table_is_found_after_a_restart(tmp_path: Path) -> None:
    await Router(tmp_path / "routes.json").publish(RouteTable(5, (BLOG, SHOP)).encode())
    router = Router(tmp_path / "routes.json")
    router.load()
    assert router.generation == 5
    assert router.find("shop.localhost") == SHOP
    assert os.listdir(tmp_path) == ["routes.json"]  # noqa: PTH208 - in a coroutine, where Path would be flagged


@pytest.mark.parametrize("data", [b"", b"{", b'{"generation":5}', b"\x00" * 100])
async def test_a_broken_file_serves_nothing_and_is_replaced(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "routes.json"
    file.write_bytes(data)
    router = Router(file)
    router.load()
    assert (router.generation, len(router)) == (0, 0)
    assert await router.publish(RouteTable(1, (BLOG,)).encode()) == 1
    router = Router(file)
    router.load()
    assert router.generation == 1


async def test_a_disk_that_cannot_be_written_does_not_stop_a_deploy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    router = Router(tmp_path / "file" / "routes.json")
    assert await router.publish(RouteTable(1, (BLOG,)).encode()) == 1
    assert router.find("blog.localhost") == BLOG


async def test_a_bad_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WireError):
        await Router(tmp_path / "routes.json").publish(b"[]")
