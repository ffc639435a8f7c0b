"""Collects the bytes of one head, up to its empty line, with a bound and without rescanning what was seen."""

from __future__ import annotations

import re

# A head that has one of these will never be one, however long we wait for its end.
_HOPELESS = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class HeadTooLong(ValueError):  # noqa: N818 - it is what happened
    """The head passed its bound; `in_first_line` tells a long URL from many fields."""

    def __init__(self, *, in_first_line: bool) -> None:
        super().__init__("head too long")
        self.in_first_line = in_first_line


class MalformedHead(ValueError):  # noqa: N818 - it is what happened
    """No head can begin like this."""


class HeadBuffer:
    """One connection's incoming heads."""

    __slots__ = ("_buffer", "_limit", "_seen")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._seen = 0

    def __bool__(self) -> bool:
        """Whether a head has begun."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The head (with its empty line) and what follows it, or None while it is not complete."""
        if not self._buffer:
            end = data.find(b"\r\n\r\n") + 4
            if 4 <= end <= self._limit:  # nearly always: the whole head in one piece
                return data[:end], data[end:]
        return self._feed_slowly(data)

    def take_rest(self) -> bytes:
        """What was collected of a head that never came to its end."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._seen = 0
        return rest

    def _feed_slowly(self, data: bytes) -> tuple[bytes, bytes] | None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n", max(0, self._seen - 3)) + 4
        if end > self._limit or (end < 4 and len(self._buffer) > self._limit):
            raise HeadTooLong(in_first_line=b"\r\n" not in self._buffer[: self._limit])
        if end >= 4:
            whole = self.take_rest()
            return whole[:end], whole[end:]
        if _HOPELESS.search(self._buffer, max(0, self._seen - 1)):
            raise MalformedHead
        self._seen = len(self._buffer)
        return None
