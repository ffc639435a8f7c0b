"""`git http-backend` as a CGI child: the body streams in, the answer streams out, and no pack is ever held in memory.

The child ends with its client: a pusher who hangs up is noticed at once, also while nothing is written, and git then
drops what it had not accepted. What was accepted is a row and a source in the spool by then, and goes on without git;
the same push again joins it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from control import log

logger = log.get(__name__)

BLOCK_BYTES = 64 * 1024
HEAD_BYTES_MAX = 16 * 1024
PUSH_LIMIT_S = 40 * 60  # upload, build and deploy
CLONE_LIMIT_S = 10 * 60
WATCH_MS = 500
# Should web itself be killed, the kernel ends git too: an orphan that moves the branch later would race with the next
# push.
COMMAND = ("setpriv", "--pdeathsig", "TERM", "--", "git", "http-backend")
DISCARD_BYTES_MAX = 512 * 1024 * 1024
PUMP_END_S = 5.0
KILL_WAIT_S = 5.0


class Body(Protocol):
    """The request's body, as WSGI gives it."""

    def read(self, size: int, /) -> bytes: ...


class BadAnswer(Exception):  # noqa: N818 - reads as the fact it states
    """The child did not give a CGI answer."""


class Backend:
    """One running child. Iterate over it for the answer's body; close it in any case."""

    def __init__(
        self,
        environment: Mapping[str, str],
        body: Body,
        length: int | None,
        *,
        client: socket.socket | None,
        limit_s: float,
        done: Callable[[], None],
    ) -> None:
        self._done = done
        self._body = body
        self._length = length
        self._client = client
        self._upload_complete = threading.Event()
        self._ended = threading.Lock()
        self._process = subprocess.Popen(
            COMMAND,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._watchdog = threading.Timer(limit_s, self._stop)
        self._watchdog.daemon = True
        self._watchdog.start()
        self._pump = threading.Thread(target=self._pump_body, name="git body", daemon=True)
        self._pump.start()
        self._rest = b""

    # ---- the answer

    def head(self) -> tuple[int, list[tuple[str, str]]]:
        """Status and headers; waits for the child to say them."""
        data = b""
        while (end := _end_of_head(data)) is None:
            block = self._read()
            if not block or len(data) > HEAD_BYTES_MAX:
                raise BadAnswer("no CGI header")
            data += block
        self._rest = data[end:]
        status, headers = 200, []
        for line in data[:end].decode("latin-1").splitlines():
            name, colon, value = line.partition(":")
            if not colon:
                continue
            if name.lower() == "status":
                status = int(value.strip()[:3])
            else:
                headers.append((name.strip(), value.strip()))
        return status, headers

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        block, self._rest = self._rest or self._read(), b""
        if not block:
            self._finish()
            raise StopIteration
        return block

    def close(self) -> None:
        """The answer is through, or the client has gone."""
        self._stop()
        self._finish()

    def _read(self) -> bytes:
        """What the child says next; nothing once it has ended, or because the client has gone."""
        assert self._process.stdout is not None  # noqa: S101 - opened as a pipe
        stdout = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        while not poll.poll(WATCH_MS):
            if self._client_has_gone():
                logger.info("git client has gone")
                self._stop()
                return b""
        return os.read(stdout, BLOCK_BYTES)

    def _client_has_gone(self) -> bool:
        if self._client is None or not self._upload_complete.is_set():
            return False
        poll = select.poll()
        poll.register(self._client, select.POLLIN)
        if not poll.poll(0):
            return False
        try:
            return self._client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    # ---- the body

    def _pump_body(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101 - opened as a pipe
        left = self._length
        try:
            while left is None or left > 0:
                block = self._body.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
                if not block:
                    break
                if left is not None:
                    left -= len(block)
                pipe.write(block)
                pipe.flush()
        except BrokenPipeError:
            self._discard(left)
            return
        except (OSError, ValueError):  # the client broke off; ValueError: closed under us
            self._stop()
            return
        if left:
            self._stop()  # half a body
            return
        self._upload_complete.set()
        try:
            pipe.close()
        except OSError:
            return

    def _discard(self, left: int | None) -> None:
        """The child has refused (too large, say) while the client still sends: let it send, so that it reads the
        answer.
        """
        taken = 0
        try:
            while taken < DISCARD_BYTES_MAX and (left is None or left > taken):
                block = self._body.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left - taken))
                if not block:
                    break
                taken += len(block)
        except (OSError, ValueError):
            return

    # ---- the end

    def _stop(self) -> None:
        """End the child and its hook. With SIGTERM, upon which git removes its lock files and its quarantine."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return

    def _finish(self) -> None:
        """Once, whoever comes first: reap the child and give back what it held."""
        if not self._ended.acquire(blocking=False):
            return
        self._watchdog.cancel()
        try:
            self._process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait(KILL_WAIT_S)
        self._pump.join(PUMP_END_S)
        for pipe in (self._process.stdout, self._process.stdin):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
        logger.info("git ended", status=self._process.returncode)
        self._done()


def _end_of_head(data: bytes) -> int | None:
    for mark in (b"\r\n\r\n", b"\n\n"):
        at = data.find(mark)
        if at >= 0:
            return at + len(mark)
    return None
