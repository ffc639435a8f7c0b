"""Joins an edge's data connection with a target socket: bytes, half-close and back-pressure, both ways.

Invariants: edge bytes reach the target only while its gate is open, and in order; while the gate is closed nothing more
is read from the edge, so the waiting bytes stay in TCP's buffers. Target bytes are never held back. Each end is a plain
protocol whose `data_received` is one call into the other's transport: this is the hot path of every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import structlog

from tunnel.dial.limits import GATE_RETRY_S, WRITE_HIGH_BYTES, WRITE_LOW_BYTES
from tunnel.dial.target import Gate
from tunnel.dial.watch import watch
from tunnel.tasks import spawn
from tunnel.wire import Opened, Refused

_log = structlog.get_logger(__name__)


class EdgeEnd(asyncio.Protocol):
    """Reads from the edge, writes to the target."""

    _target: asyncio.Transport  # from `start` on, before which no event reaches this end

    def __init__(self, edge: asyncio.Transport, gate: Gate, on_closed: Callable[[], None]) -> None:
        self._edge = edge
        self._gate = gate
        self._touch = gate.touch
        self._is_open = gate.is_open
        self._on_closed = on_closed
        self._held: list[bytes] = []  # edge bytes that arrived while the gate was closed
        self._eof = False
        self._passed_eof = False
        self._target_eof = False
        self._waiting: asyncio.Task[None] | None = None
        self._target_full = False
        edge.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)

    def start(self, target: asyncio.Transport, early: bytes, *, eof: bool) -> None:
        """Begin: the edge connection now belongs to this end, and `early` arrived on it before."""
        self._target = target
        self._edge.set_protocol(self)
        if early:
            self.data_received(early)
        if eof:
            self.eof_received()

    def data_received(self, data: bytes) -> None:
        self._touch()
        if not self._held and self._is_open():
            self._target.write(data)
        else:
            self._hold(data)

    def eof_received(self) -> bool:
        self._eof = True
        if not self._held:
            self._pass_eof()
        return True  # half-close: the target may still answer

    def pause_writing(self) -> None:
        self._target.pause_reading()

    def resume_writing(self) -> None:
        self._target.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # reset or closed: the stream is over either way
        if self._waiting is not None:
            self._waiting.cancel()
        self._held.clear()
        self._target.close()
        self._on_closed()

    def set_target_full(self, full: bool) -> None:  # noqa: FBT001 - a state, set by the other end only
        self._target_full = full
        if full:
            self._edge.pause_reading()
        elif self._waiting is None:
            self._edge.resume_reading()

    def target_ended(self) -> None:
        self._target_eof = True
        self._close_if_over()

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        if self._waiting is None:
            self._edge.pause_reading()
            self._waiting = spawn(self._wait(), name="gate-wait")

    async def _wait(self) -> None:
        try:
            while True:
                watcher = await self._gate.wait()
                if watcher is not None:
                    watch(self._target, watcher)
                self._touch()
                if self._is_open():
                    break
                await asyncio.sleep(GATE_RETRY_S)  # it closed again at once
        except Refused as e:
            _log.info("stream cut", code=e.code, phase=e.phase, message=e.message)
            self._edge.abort()
            return
        finally:
            self._waiting = None
        self._target.writelines(self._held)
        self._held.clear()
        if self._eof:
            self._pass_eof()
        if not self._target_full:
            self._edge.resume_reading()

    def _pass_eof(self) -> None:
        if not self._target.is_closing():
            self._target.write_eof()
        self._passed_eof = True
        self._close_if_over()

    def _close_if_over(self) -> None:
        # A transport whose two directions have ended stays open until it is told.
        if self._passed_eof and self._target_eof:
            self._target.close()
            self._edge.close()


class TargetEnd(asyncio.Protocol):
    """Reads from the target, writes to the edge."""

    def __init__(self, edge: asyncio.Transport, edge_end: EdgeEnd, opened: Opened) -> None:
        self._edge = edge
        self._edge_end = edge_end
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._edge.write(self._opened.encode())  # here, because an app that speaks first may be read right after this

    def data_received(self, data: bytes) -> None:
        self._edge.write(data)

    def eof_received(self) -> bool:
        if not self._edge.is_closing():
            self._edge.write_eof()
        self._edge_end.target_ended()
        return True

    def pause_writing(self) -> None:
        self._edge_end.set_target_full(True)

    def resume_writing(self) -> None:
        self._edge_end.set_target_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        # Not abort: what the app said before it went (an early 413, say) must still reach the client.
        self._edge.close()
