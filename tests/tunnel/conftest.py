"""Fixtures of the tunnel's tests: they run under uvloop, as the edge does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.tunnel.world import World, world


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop differs from asyncio's own loop in what a closed transport forgives: test what is run."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def tunnel(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as it:
        yield it
