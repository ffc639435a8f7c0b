"""The access log: one JSON line a request, on standard output.

A thread writes it, so that a slow reader stops nobody.

JSON in pure ASCII is also the escaping: no byte a client sends can reach a terminal as a control sequence. Lines are
formatted here and not by structlog because they are on the hot path; their shape is the same.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime

FLUSH_LINES = 256
MAX_BATCHES = 256  # waiting for the writer; beyond that lines are counted, not kept
MAX_TARGET_CHARS = 2048
MAX_AGENT_CHARS = 256

_encode = json.JSONEncoder(separators=(", ", ": ")).encode


@dataclass(slots=True)
class Record:
    """One request, as it is logged."""

    id: str
    client: str
    method: str
    hostname: str
    target: str
    app: str
    machine: str
    status: int
    code: str
    pipe: str  # kept, fresh or retried; empty if none was needed
    bytes_in: int
    bytes_out: int
    open_s: float
    first_byte_s: float
    total_s: float
    agent: str


class AccessLog:
    """Collects lines and has them written."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._lines: list[str] = []
        self._queue: queue.Queue[bytes | None] = queue.Queue(MAX_BATCHES)
        self._dropped = 0
        self._second = 0
        self._stamp = ""
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._thread.start()

    def add(self, r: Record) -> None:
        """Log one request."""
        self._lines.append(
            _encode(
                {
                    "timestamp": self._now(),
                    "level": "info",
                    "event": "request",
                    "id": r.id,
                    "client": r.client,
                    "method": r.method,
                    "hostname": r.hostname,
                    "target": r.target[:MAX_TARGET_CHARS],
                    "status": r.status,
                    "code": r.code,
                    "app": r.app,
                    "machine": r.machine,
                    "pipe": r.pipe,
                    "bytes_in": r.bytes_in,
                    "bytes_out": r.bytes_out,
                    "open_ms": round(r.open_s * 1000, 2),
                    "first_byte_ms": round(r.first_byte_s * 1000, 2),
                    "total_ms": round(r.total_s * 1000, 2),
                    "agent": r.agent[:MAX_AGENT_CHARS],
                }
            )
        )
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def flush(self) -> None:
        """Hand what was collected to the writer. Called about once a second too."""
        if self._lines:
            if self._dropped:
                self._lines.append(_encode({"level": "warning", "event": "access lines lost", "n": self._dropped}))
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
        self._thread.join(timeout=5.0)

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
