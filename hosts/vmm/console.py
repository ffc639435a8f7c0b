"""A guest's serial console: read from QEMU's socket into a ring of fixed size, never into a file.

While no agent is connected QEMU drops what the guest prints. So a guest that floods its console costs neither disk
nor memory, and little of the agent's time, and what a dead guest said last is still there after its QEMU is gone.
"""

from __future__ import annotations

import asyncio
import socket

CONSOLE_BYTES = 64 * 1024  # of a guest's console that are kept
# QEMU passes a console on byte by byte. One that is flooded is read this rarely, and its guest waits meanwhile.
READ_INTERVAL_S = 0.01  # between two reads of a guest's console


class Console:
    """The last `CONSOLE_BYTES` of a console."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock: socket.socket | None = sock
        self._ring = b""
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock.fileno(), self._read_and_pause)

    def tail(self) -> str:
        """What was printed last."""
        if self._sock is not None:
            self._read()  # the end of a dead guest's words may still be in the socket
        return self._ring.decode(errors="replace")

    def close(self) -> None:
        """Stop reading; what was read stays."""
        if self._pause is not None:
            self._pause.cancel()
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _read_and_pause(self) -> None:
        self._read()
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._pause = self._loop.call_later(READ_INTERVAL_S, self._go_on)

    def _go_on(self) -> None:
        if self._sock is not None:
            self._loop.add_reader(self._sock.fileno(), self._read_and_pause)

    def _read(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(CONSOLE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._ring = (self._ring + data)[-CONSOLE_BYTES:]
