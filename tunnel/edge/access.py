"""The access log: one JSON line a request, on standard output.

A thread writes it, so that a slow reader stops nobody.

Phases: `open_ms` until there was a pipe to the app, of which the host spent `wake_ms` on a wake that this request
`caused` or `waited` for; `first_byte_ms` until the app's answer began; `total_ms`. All but `wake_ms` count from the
request's head.

JSON in pure ASCII is also the escaping: no byte a client sends can reach a terminal as a control sequence. Lines are
formatted here and not by structlog because they are on the hot path; their shape is the same.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from datetime import UTC, datetime
from functools import lru_cache

from tunnel.edge.counts import Counts
from tunnel.proto.request import RequestHead
from tunnel.wire import RAN, Opened, Route

FLUSH_LINES = 256  # lines of the access log written at once; fewer wait a second at most
MAX_BATCHES = 256  # of lines waiting for the writer; beyond that lines are counted, not kept
MAX_TARGET_BYTES = 2048  # of a URL, in the access log
CLOSE_S = 5.0  # the last lines may take so long when the edge ends
MAX_AGENT_BYTES = 256  # of a User-Agent, in the access log


def _quote(value: bytes) -> str:
    return json.dumps(value.decode("latin-1"))


@lru_cache(maxsize=1024)
def _agent(value: bytes) -> str:
    return _quote(value)


@lru_cache(maxsize=4096)
def _name(value: str) -> str:
    return json.dumps(value)


def _wake(opened: Opened) -> str:
    return f'"wake": {_name(opened.wake)}, "wake_ms": {opened.wake_ms:.2f}, '


_NO_WAKE = _wake(RAN)


class AccessLog:
    """Collects lines and has them written."""

    def __init__(self, fd: int = 1) -> None:
        self.counts = Counts()
        self._fd = fd
        self._lines: list[str] = []
        self._queue: queue.Queue[bytes | None] = queue.Queue(MAX_BATCHES)
        self._dropped = 0
        self._second = 0
        self._stamp = ""
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._thread.start()

    def add(
        self,
        request: str,
        client: str,
        head: RequestHead | None,  # None if it could not be read
        route: Route | None,  # None if there is none
        status: int,
        code: str,
        pipe: str = "",  # kept, fresh or retried; empty if none was needed
        bytes_in: int = 0,
        bytes_out: int = 0,
        open_s: float = 0.0,
        first_byte_s: float = 0.0,
        total_s: float = 0.0,
        opened: Opened = RAN,
    ) -> None:
        """Log one request, and count it."""
        self.counts.request(status, code, pipe, bytes_in, bytes_out, total_s, opened)
        if head is None:
            asked = '"method": "", "hostname": "", "target": "", "agent": ""'
        else:
            agent = _agent(head.fields.user_agent[:MAX_AGENT_BYTES])
            asked = (
                f'"method": "{head.method.decode()}", "hostname": "{head.fields.authority.hostname}", '
                f'"target": {_quote(head.target[:MAX_TARGET_BYTES])}, "agent": {agent}'
            )
        app = "" if route is None else f'"app": {_name(route.app)}, "machine": {_name(route.machine)}, '
        self._lines.append(
            f'{{"timestamp": "{self._now()}", "level": "info", "event": "request", "id": "{request}", '
            f'"client": "{client}", {asked}, {app}"status": {status}, "code": {_name(code)}, "pipe": "{pipe}", '
            f"{_NO_WAKE if opened is RAN else _wake(opened)}"
            f'"bytes_in": {bytes_in}, "bytes_out": {bytes_out}, "open_ms": {open_s * 1000:.2f}, '
            f'"first_byte_ms": {first_byte_s * 1000:.2f}, "total_ms": {total_s * 1000:.2f}}}'
        )
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    @property
    def lost(self) -> int:
        """Lines that could not be written lately."""
        return self._dropped

    def flush(self) -> None:
        """Hand what was collected to the writer. Called about once a second too."""
        if self._lines:
            if self._dropped:
                self._lines.append(f'{{"level": "warning", "event": "access lines lost", "n": {self._dropped}}}')
            batch = "\n".join(self._lines).encode() + b"\n"
            try:
                self._queue.put_nowait(batch)
                self._dropped = 0
            except queue.Full:
                self._dropped += len(self._lines)
            self._lines.clear()

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        self._queue.put(None)
        self._thread.join(timeout=CLOSE_S)

    def _now(self) -> str:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._stamp}.{int((now - second) * 1000):03d}Z"

    def _write(self) -> None:
        while (batch := self._queue.get()) is not None:
            view = memoryview(batch)
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                self._dropped += 1  # nobody reads us any more; serving goes on
