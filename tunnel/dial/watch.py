"""Tells a watcher of the first byte an app says on one stream, then steps aside.

It stands before the target's end of a splice only until that byte has come: streams nobody watches, and watched ones
from then on, cost nothing more.
"""

from __future__ import annotations

import asyncio
from typing import cast

from tunnel.dial.target import Watcher


class FirstByte(asyncio.Protocol):
    """In front of another protocol until the first byte."""

    def __init__(self, transport: asyncio.Transport, inner: asyncio.Protocol, watcher: Watcher) -> None:
        self._transport = transport
        self._inner = inner
        self._watcher = watcher

    def data_received(self, data: bytes) -> None:
        self._transport.set_protocol(self._inner)
        self._inner.data_received(data)
        self._watcher.app_spoke()

    def eof_received(self) -> bool | None:
        self._watcher.stream_ended()
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watcher.stream_ended()
        self._inner.connection_lost(exc)


def watch(transport: asyncio.Transport, watcher: Watcher) -> None:
    """Have `watcher` told of the next byte that is read from this transport."""
    inner = cast("asyncio.Protocol", transport.get_protocol())
    transport.set_protocol(FirstByte(transport, inner, watcher))
