"""The host's event journal: one append-only file, fsynced before anyone relies on an event, kept until acknowledged.

The file is a header line (`journal_id`, `base_seq`) and one checked line per event; event n of the file has seq
base_seq + n. A torn tail is what a crash leaves and is cut off; a bad line with good lines after it is damage, and
refused. Appends made while the disk is busy share one fsync. Acknowledged events are dropped by rewriting the file
without them, never by editing it.
"""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from hosts.agent.clock import Clock
from hosts.agent.durable import Scribe, replace_file, sync_folder
from hosts.wire.codec import WireError, decode, encode
from hosts.wire.events import Event, EventKind
from tunnel.tasks import spawn

log = structlog.get_logger(__name__)

JOURNAL_FORMAT = 1
MAX_BATCH = 500  # events in one shipment (hosts/wire/SPEC.md)
COMPACT_BYTES = 256 * 1024  # acknowledged bytes worth a rewrite
THIN_BYTES = 64 * 1024 * 1024  # above this, acknowledged events are dropped at once
MAX_BYTES = 256 * 1024 * 1024  # above this, no new session and no wake is noted; a machine's `History` keeps owing it


class JournalError(Exception):
    """The journal could not be read, or could not make an event durable."""


@dataclass(slots=True)
class _Waiting:
    event: Event
    done: asyncio.Future[None]


class Journal:
    """Appends, batches for shipping, and acknowledgement. All methods run on the event loop."""

    def __init__(self, path: Path, scribe: Scribe, *, new_journal_id: str) -> None:
        self._path = path
        self._scribe = scribe
        self._waiting: list[_Waiting] = []
        self._writing = False
        self._writer: asyncio.Task[None] | None = None
        self._file_lock = asyncio.Lock()
        self.told: Callable[[Event], None] | None = None  # is told of every event once it is durable
        self.grew = asyncio.Event()  # set when there is something to ship
        opened = _open(path, new_journal_id)
        self.journal_id = opened.journal_id
        self._fd = opened.fd
        self._base_seq = opened.base_seq
        # (start, end) in the file of every event not yet dropped, in seq order
        self._spans: list[tuple[int, int]] = opened.spans
        self._end = opened.end
        self._acked = 0  # how many of the file's events control has
        if self._spans:
            self.grew.set()

    @property
    def next_seq(self) -> int:
        """The seq the next event will get."""
        return self._base_seq + len(self._spans)

    @property
    def unshipped(self) -> int:
        """Events control has not acknowledged."""
        return len(self._spans) - self._acked

    @property
    def size_bytes(self) -> int:
        """What the file holds, acknowledged or not."""
        return self._end

    async def append(self, *events: Event) -> None:
        """Make events durable in this order (their `seq` is set here), or JournalError and none of them is kept."""
        if self._end > MAX_BYTES and any(e.kind is EventKind.SESSION_STARTED or e.wake is not None for e in events):
            raise JournalError(f"the journal holds {self._end} bytes that control has not taken")
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(event, loop.create_future()) for event in events]
        self._waiting.extend(waiting)
        if not self._writing:
            self._writing = True
            self._writer = spawn(self._write_all(), name="journal-write")
        results = await asyncio.gather(*(w.done for w in waiting), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def batch(self, limit: int = MAX_BATCH) -> tuple[Event, ...]:
        """The oldest events not yet acknowledged, at most `limit`."""
        async with self._file_lock:
            spans = self._spans[self._acked : self._acked + limit]
            if not spans:
                self.grew.clear()
                return ()
            data = await self._scribe.run(os.pread, self._fd, spans[-1][1] - spans[0][0], spans[0][0])
            first_seq = self._base_seq + self._acked
        lines = data.splitlines()
        return tuple(replace(_parse(line), seq=first_seq + i) for i, line in enumerate(lines))

    async def acknowledge(self, seq: int) -> None:
        """Control has everything up to and including `seq`. A seq we never gave out is ignored."""
        async with self._file_lock:
            count = seq - self._base_seq + 1
            if count <= self._acked or count > len(self._spans):
                return
            self._acked = count
            acked_bytes = self._spans[count - 1][1] - self._spans[0][0]
            if acked_bytes >= COMPACT_BYTES:
                await self._rewrite()

    async def close(self) -> None:
        """Wait for writes under way and close the file."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        async with self._file_lock:
            os.close(self._fd)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                now, self._waiting = self._waiting, []
                async with self._file_lock:
                    await self._write(now)
        finally:
            self._writing = False

    async def _write(self, batch: list[_Waiting]) -> None:
        seq = self.next_seq
        lines = [_line(replace(w.event, seq=seq + i)) for i, w in enumerate(batch)]
        try:
            await self._scribe.run(_append, self._fd, b"".join(lines), self._end)
        except OSError as e:
            log.error("journal.append_failed", error=str(e), events=len(batch))
            for waiting in batch:
                if not waiting.done.done():
                    waiting.done.set_exception(JournalError(f"the journal could not be written: {e}"))
            return
        for line in lines:
            self._spans.append((self._end, self._end + len(line)))
            self._end += len(line)
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_result(None)
        self.grew.set()
        if self.told is not None:
            for waiting in batch:
                self.told(waiting.event)
        if self._end > THIN_BYTES and self._acked:
            await self._rewrite()

    async def _rewrite(self) -> None:
        """Drop the acknowledged head. Failing only costs disk; the next acknowledgement tries again."""
        base_seq = self._base_seq + self._acked
        header = _header(self.journal_id, base_seq)
        kept = self._spans[self._acked :]
        start = kept[0][0] if kept else self._end
        try:
            fd = await self._scribe.run(_copy_tail, self._path, self._fd, header, start, self._end)
        except OSError as e:
            log.warning("journal.compact_failed", error=str(e))
            return
        os.close(self._fd)
        self._fd = fd
        shift = len(header) - start
        self._spans = [(a + shift, b + shift) for a, b in kept]
        self._end += shift
        self._base_seq = base_seq
        self._acked = 0


async def open_journal(path: Path, scribe: Scribe, clock: Clock) -> Journal:
    """The journal, made if it is not there. A damaged one is set aside, and what is whole in it goes into a new one.

    Serving must not wait for someone to repair a file. Events keep their ids, so control takes none of them twice.
    """
    try:
        return await scribe.run(Journal, path, scribe, new_journal_id=clock.new_id())
    except JournalError as e:
        aside = path.with_name(f"{path.name}.damaged-{clock.wall_ms()}")
        log.error("journal.damaged", error=str(e), set_aside=str(aside))
        whole = await scribe.run(_whole_events, path)
        await scribe.run(path.rename, aside)
    journal = await scribe.run(Journal, path, scribe, new_journal_id=clock.new_id())
    if whole:
        await journal.append(*whole)
    return journal


def _whole_events(path: Path) -> list[Event]:
    found = []
    for line in path.read_bytes().splitlines():
        with suppress(JournalError):
            found.append(_parse(line))
    return found


@dataclass(frozen=True, slots=True)
class _Opened:
    journal_id: str
    fd: int
    base_seq: int
    spans: list[tuple[int, int]]
    end: int


def _open(path: Path, new_journal_id: str) -> _Opened:
    if not path.exists():
        replace_file(path, _header(new_journal_id, 1))
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    data = path.read_bytes()
    header_end = data.find(b"\n") + 1
    try:
        header = json.loads(data[:header_end])
        journal_id, base_seq = header["journal_id"], header["base_seq"]
        if header["journal"] != JOURNAL_FORMAT or type(journal_id) is not str or type(base_seq) is not int:
            raise ValueError("another format")
    except (ValueError, KeyError, TypeError) as e:
        os.close(fd)
        raise JournalError(f"{path}: not a journal: {e}") from None
    spans, end = _scan(data, header_end, path)
    if end < len(data):
        log.warning("journal.torn_tail", cut_bytes=len(data) - end)
        os.ftruncate(fd, end)
        os.fsync(fd)
    return _Opened(journal_id, fd, base_seq, spans, end)


def _scan(data: bytes, start: int, path: Path) -> tuple[list[tuple[int, int]], int]:
    spans: list[tuple[int, int]] = []
    at = start
    while at < len(data):
        newline = data.find(b"\n", at)
        if newline < 0 or not _is_whole(data[at:newline]):
            _refuse_damage(data, at, path)
            break
        spans.append((at, newline + 1))
        at = newline + 1
    return spans, at


def _refuse_damage(data: bytes, at: int, path: Path) -> None:
    """A crash tears only the end. A good line after a bad one is damage: dropping it would lose bills in silence."""
    if any(_is_whole(line) for line in data[at:].splitlines()[1:]):
        raise JournalError(f"{path}: damaged at byte {at}; move it away to start a new journal")


def _is_whole(line: bytes) -> bool:
    checksum, _, body = line.partition(b" ")
    return len(checksum) == 8 and checksum == b"%08x" % zlib.crc32(body)


def _header(journal_id: str, base_seq: int) -> bytes:
    return json.dumps({"journal": JOURNAL_FORMAT, "journal_id": journal_id, "base_seq": base_seq}).encode() + b"\n"


def _line(event: Event) -> bytes:
    body = encode(event)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _parse(line: bytes) -> Event:
    if not _is_whole(line):
        raise JournalError("an event changed on disk since the start")
    try:
        return decode(Event, line.partition(b" ")[2])
    except WireError as e:
        raise JournalError(f"an event of another version: {e}") from None


def _append(fd: int, data: bytes, at: int) -> None:
    try:
        view, offset = memoryview(data), at
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written
        os.fdatasync(fd)
    except OSError:
        # Whatever part reached the file must not be read as events that were promised.
        os.ftruncate(fd, at)
        raise


def _copy_tail(path: Path, fd: int, header: bytes, start: int, end: int) -> int:
    beside = path.with_name(f".{path.name}.new")
    new = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        at = os.pwrite(new, header, 0)
        while start < end:
            chunk = os.pread(fd, min(1 << 20, end - start), start)
            at += os.pwrite(new, chunk, at)
            start += len(chunk)
        os.fsync(new)
        beside.rename(path)
        sync_folder(path.parent)
    except OSError:
        os.close(new)
        raise
    return new
