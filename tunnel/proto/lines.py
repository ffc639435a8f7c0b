"""Splits what arrives on the tunnel's own connections into lines, with a bound."""

from __future__ import annotations

from tunnel.wire import MAX_LINE_BYTES, WireError


class LineBuffer:
    """Lines of one connection, and whatever follows the last one that was taken."""

    __slots__ = ("_buffer", "_limit", "_seen")

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._seen = 0  # so much of it holds no newline

    def feed(self, data: bytes) -> None:
        """Bytes that arrived."""
        self._buffer += data

    def take_line(self) -> bytes | None:
        """The next complete line with its newline, None if there is none; WireError if it grows too long."""
        end = self._buffer.find(b"\n", self._seen) + 1
        if end > self._limit or (not end and len(self._buffer) > self._limit):
            raise WireError("line too long")
        if not end:
            self._seen = len(self._buffer)
            return None
        self._seen = 0
        line = bytes(self._buffer[:end])
        del self._buffer[:end]
        return line

    def take_rest(self) -> bytes:
        """Everything that is not a line: the start of the byte pipe."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._seen = 0
        return rest

    def set_limit(self, limit: int) -> None:
        """Lines may be longer from here on (a route table)."""
        self._limit = limit
