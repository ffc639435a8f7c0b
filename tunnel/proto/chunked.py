"""The chunked coding, decoded strictly and written anew.

Chunk boundaries are kept (a stream's chunks are its messages), sizes are written canonically, extensions are dropped,
trailers are filtered. A run of chunks that is canonical already comes out as one slice of what came in.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from tunnel.proto.errors import BadBody
from tunnel.proto.fields import OWS, VALUE, is_safe_trailer, split_fields
from tunnel.proto.head import HeadBuffer, HeadTooLong, MalformedHead

MAX_EXTENSION_BYTES = 256  # of a chunk's extensions
MAX_SIZE_LINE_BYTES = 16 + 1 + MAX_EXTENSION_BYTES + 2  # of a chunk's first line
MAX_CHUNK_BYTES = 2**63 - 1  # of one chunk
MAX_TRAILER_BYTES = 16 * 1024  # of all trailers
MAX_TRAILERS = 64  # fields after a chunked body
SPARE_CHUNKS = 16 * 1024  # allowed whatever they hold; from then on a chunk must hold four bytes on average

_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,16})(?:;" + VALUE + rb"{0,256})?")
_BARE_LF = re.compile(rb"(?<!\r)\n")


class _At(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILERS = auto()
    DONE = auto()


class ChunkedBody:
    """A chunked body on its way through."""

    __slots__ = ("_at", "_bytes", "_chunks", "_left", "_limit_chunks", "_partial", "_reframe", "_trailer")

    def __init__(self, *, reframe: bool = True, limit_chunks: bool = False) -> None:
        """`reframe` false gives the bare data, for a receiver that knows no chunks; `limit_chunks` is for clients."""
        self._at = _At.SIZE
        self._left = 0
        self._partial = b""  # of a size line, or of the CRLF after a chunk
        self._trailer = HeadBuffer(MAX_TRAILER_BYTES)
        self._reframe = reframe
        self._limit_chunks = limit_chunks
        self._chunks = 0
        self._bytes = 0

    @property
    def done(self) -> bool:
        return self._at is _At.DONE

    def end(self) -> bytes:
        """The connection ended: never the end of a chunked body."""
        raise BadBody("the connection ended inside a chunked body")

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """What goes on of `data`, and what comes after the body's end."""
        out: list[bytes] = []
        if self._partial:
            data = self._partial + data
            self._partial = b""
        i = self._run(data, out)
        if self._at is _At.DONE:
            return out, data[i:]
        return out, b""

    def _run(self, data: bytes, out: list[bytes]) -> int:
        i = start = 0  # data[start:i] goes on as it is
        size = len(data)
        verbatim = self._reframe
        while True:
            if self._at is _At.DATA:
                taken = min(self._left, size - i)
                if not verbatim:
                    start = i
                i += taken
                self._left -= taken
                if not verbatim and taken:
                    out.append(data[start:i])
                if self._left:
                    break
                self._at = _At.DATA_END
            elif self._at is _At.DATA_END:
                if size - i < 2:
                    break
                if data[i] != 13 or data[i + 1] != 10:
                    raise BadBody("a chunk does not end where its size says")
                i += 2
                self._at = _At.SIZE
            elif self._at is _At.SIZE:
                end = data.find(b"\r\n", i, i + MAX_SIZE_LINE_BYTES)
                if end < 0:
                    self._check_partial_line(data, i)
                    break
                chunk = self._size(data[i:end])
                if chunk == 0:
                    if verbatim and start < i:
                        out.append(data[start:i])
                    self._at = _At.TRAILERS
                    start = i = end + 2
                    continue
                line = b"%x" % chunk
                if verbatim and line != data[i:end]:
                    out.append(data[start:i] + line + b"\r\n")
                    start = end + 2
                i = end + 2
                self._left = chunk
                self._at = _At.DATA
            else:
                return self._trailers(data, i, out)
        if verbatim and start < i:
            out.append(data[start:i] if start or i < size else data)
        self._partial = data[i:]
        return size

    def _size(self, line: bytes) -> int:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise BadBody("a chunk size is malformed")
        size = int(match[1], 16)
        if size > MAX_CHUNK_BYTES:
            raise BadBody("a chunk is too large")
        self._chunks += 1
        self._bytes += size
        if self._limit_chunks and self._chunks > SPARE_CHUNKS + self._bytes // 4:
            raise BadBody("the body comes in too many tiny chunks")
        return size

    def _check_partial_line(self, data: bytes, i: int) -> None:
        rest = data[i:]
        if len(rest) >= MAX_SIZE_LINE_BYTES or _BARE_LF.search(rest):
            raise BadBody("a chunk size line is malformed")

    def _trailers(self, data: bytes, i: int, out: list[bytes]) -> int:
        """Collect the trailers and their empty line. With the CRLF before them they look like a head."""
        try:
            found = self._trailer.feed(data[i:] if self._trailer else b"\r\n" + data[i:])
        except (HeadTooLong, MalformedHead):
            raise BadBody("the trailers are malformed or too long") from None
        if found is None:
            return len(data)
        block, rest = found
        trailers = _filter_trailers(block)
        if self._reframe:
            out.append(b"0" + trailers)
        self._at = _At.DONE
        return len(data) - len(rest)


def _filter_trailers(block: bytes) -> bytes:
    """`block` begins with the CRLF of the last chunk's size line, and so does what is returned."""
    fields = split_fields(block, 2)
    if fields is None or len(fields) > MAX_TRAILERS:
        raise BadBody("a trailer is malformed")
    lines = [b"%b: %b\r\n" % (name, value.strip(OWS)) for name, value in fields if is_safe_trailer(name)]
    return b"\r\n" + b"".join(lines) + b"\r\n"
