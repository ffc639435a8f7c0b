"""A QMP client: one command line of JSON out, one answer in, events between, file descriptors alongside.

It needs no task: the loop calls it when bytes arrive. Every command has a time-out; a connection that broke fails
what is pending and everything after. QEMU is not trusted here: an answer that is too long or is not JSON ends the
connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hosts.vmm.protocol import NoAnswer, VmmError

Json = dict[str, object]

COMMAND_TIMEOUT_S = 30.0  # giving up costs a guest its memory, and `stop` writes its disks out before it answers
GREETING_TIMEOUT_S = 30.0  # fifty QEMUs may be starting at once on two cores
MAX_MESSAGE_BYTES = 1 << 20  # of QEMU's answers
READ_BYTES = 1 << 16


class Qmp:
    """A negotiated QMP connection. Made by `connect`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._next_id = 0
        self._pending: dict[int, asyncio.Future[object]] = {}
        self._expected: list[tuple[Callable[[str, Json], bool], asyncio.Future[Json]]] = []
        self._greeting: asyncio.Future[Json] = self._loop.create_future()
        self._broken = ""
        self.on_event: Callable[[str, Json], None] | None = None  # sees every event, in the loop; must not block
        self._loop.add_reader(sock.fileno(), self._readable)

    @classmethod
    async def connect(cls, path: Path, timeout_s: float = GREETING_TIMEOUT_S) -> Qmp:
        """Connect to QEMU's socket, await its greeting and leave negotiation mode; VmmError if it does not come."""
        qmp = cls(await connect_unix(path, timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                await qmp._greeting
            await qmp.execute("qmp_capabilities", timeout_s=timeout_s)
        except TimeoutError:
            qmp.close()
            raise VmmError(f"no QMP greeting within {timeout_s} s") from None
        except BaseException:
            qmp.close()
            raise
        return qmp

    async def execute(
        self,
        command: str,
        arguments: Json | None = None,
        *,
        fd: int | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> object:
        """Run one command, `fd` travelling with it, and give its return value; VmmError if QEMU says no or nothing."""
        if self._broken:
            raise VmmError(f"QMP {command}: {self._broken}")
        self._next_id += 1
        message: Json = {"execute": command, "id": self._next_id}
        if arguments is not None:
            message["arguments"] = arguments
        answer: asyncio.Future[object] = self._loop.create_future()
        self._pending[self._next_id] = answer
        number = self._next_id
        try:
            async with asyncio.timeout(timeout_s):
                self._send(json.dumps(message).encode() + b"\n", fd)
                return await answer
        except TimeoutError:
            raise NoAnswer(f"QMP {command}: no answer within {timeout_s} s") from None
        except OSError as e:
            self._break(f"connection lost: {e}")
            raise VmmError(f"QMP {command}: {e}") from None
        except VmmError as e:
            raise VmmError(f"QMP {command}: {e}") from None
        finally:
            self._pending.pop(number, None)

    def expect(self, wanted: Callable[[str, Json], bool]) -> asyncio.Future[Json]:
        """The data of the first event from now on that `wanted(name, data)` accepts; ask before the command that
        causes it.
        """
        future: asyncio.Future[Json] = self._loop.create_future()
        self._expected.append((wanted, future))
        return future

    def close(self) -> None:
        """End the connection; QEMU goes on."""
        self._break("closed")

    def _send(self, data: bytes, fd: int | None) -> None:
        # A command is far smaller than a socket buffer and QEMU reads them at once: one that does not fit means that
        # it hangs.
        sent = socket.send_fds(self._sock, [data], [fd] if fd is not None else [])
        if sent != len(data):
            raise BlockingIOError("QEMU does not read its commands")

    def _readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as e:
            self._break(f"connection lost: {e}")
            return
        if not data:
            self._break("QEMU closed the connection")
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_MESSAGE_BYTES:
            self._break("QEMU sent an endless line")
            return
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._break("QEMU sent no JSON")
            return
        if not isinstance(message, dict):
            self._break("QEMU sent no JSON object")
        elif "QMP" in message:
            if not self._greeting.done():
                self._greeting.set_result(message)
        elif "event" in message:
            self._take_event(str(message["event"]), message.get("data") or {})
        elif (
            isinstance(number := message.get("id"), int) and (answer := self._pending.get(number)) and not answer.done()
        ):
            if "error" in message:
                answer.set_exception(VmmError(str(message["error"].get("desc", "refused"))))
            else:
                answer.set_result(message.get("return"))

    def _take_event(self, name: str, data: Json) -> None:
        if self.on_event is not None:
            self.on_event(name, data)
        for entry in list(self._expected):
            wanted, future = entry
            if future.done():
                self._expected.remove(entry)
            elif wanted(name, data):
                self._expected.remove(entry)
                future.set_result(data)

    def _break(self, reason: str) -> None:
        if self._broken:
            return
        self._broken = reason
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        waiting: list[asyncio.Future[Any]] = [self._greeting, *self._pending.values()]
        waiting += [future for _, future in self._expected]
        for future in waiting:
            if not future.done():
                future.set_exception(VmmError(reason))
                future.exception()  # seen: nobody need be waiting for it
        self._expected.clear()


async def connect_unix(path: Path, timeout_s: float) -> socket.socket:
    """A non-blocking connection to a Unix socket whose path may be longer than a socket address; VmmError if it is
    refused.
    """
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(sock, f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except (OSError, TimeoutError) as e:
        sock.close()
        raise VmmError(f"{path.name}: {e or 'no answer'}") from None
    except BaseException:
        sock.close()
        raise
    return sock


def listen_unix(path: Path) -> socket.socket:
    """A listening Unix socket only root may connect to; replaces a dead one. Its path may be longer than a socket
    address.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path.unlink(missing_ok=True)
        sock.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
        sock.listen(2)
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(folder)
    return sock
