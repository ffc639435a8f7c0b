"""Bodies on their way through: what goes on of each piece, where the body ends, and whether it ended well."""

from __future__ import annotations

from typing import Protocol

from tunnel.proto.errors import BadBody


class Body(Protocol):
    """One message's body, whatever its framing."""

    @property
    def done(self) -> bool:
        """Whether the body has ended."""

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """What goes on of `data`, and what comes after the body's end. Raises BadBody."""

    def end(self) -> bytes:
        """The connection has ended: what is still to be sent, or BadBody if the body was cut."""


class NoBody:
    """No body at all."""

    __slots__ = ()
    done = True

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        return [], data

    def end(self) -> bytes:
        return b""


class LengthBody:
    """A body of so many bytes."""

    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def done(self) -> bool:
        return self._left == 0

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        left = self._left - len(data)
        if left >= 0:
            self._left = left
            return [data], b""
        body, rest = data[: self._left], data[self._left :]
        self._left = 0
        return [body], rest

    def end(self) -> bytes:
        if self._left:
            raise BadBody(f"the connection ended {self._left} bytes before the body did")
        return b""


class CloseBody:
    """A response body that ends with its connection; written on in chunks for a client that knows them."""

    __slots__ = ("_chunked",)
    done = False

    def __init__(self, *, chunked: bool) -> None:
        self._chunked = chunked

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        if not self._chunked or not data:
            return [data], b""
        return [b"%x\r\n" % len(data), data, b"\r\n"], b""

    def end(self) -> bytes:
        return b"0\r\n\r\n" if self._chunked else b""
