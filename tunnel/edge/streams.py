"""Opens streams: takes a data connection of a host, writes OPEN, waits for OPENED.

The waits are bounded in time, and in number by the waiting room. A data connection that dies before it answered is
replaced: nothing of the request was on it yet.
"""

from __future__ import annotations

import asyncio
import contextlib

from tunnel.edge.hosts import Hosts
from tunnel.edge.limits import OPEN_ATTEMPTS, Limits
from tunnel.edge.pipes import Pipe
from tunnel.edge.waiting import WaitingRoom
from tunnel.proto.lines import LineBuffer
from tunnel.wire import Code, Open, Refused, ToMachine, WireError, check_opened


class Streams:
    """The way to every machine."""

    def __init__(self, hosts: Hosts, limits: Limits) -> None:
        self._hosts = hosts
        self._limits = limits
        self.room = WaitingRoom(limits)

    async def open(self, host_id: str, wanted: Open) -> tuple[Pipe, bytes]:
        """An open pipe, and what already came through it; Refused if there is none in time."""
        phase = _Phase()
        # Control's streams to a host's API are few, and must get through while visitors fill the room.
        place = self.room.place(wanted.to.machine) if isinstance(wanted.to, ToMachine) else contextlib.nullcontext()
        with place:
            try:
                async with asyncio.timeout(self._limits.wake_timeout_s):
                    return await self._open(host_id, wanted, phase)
            except TimeoutError:
                code = Code.WAKE_TIMEOUT if phase.name == "wake" else Code.TUNNEL_TIMEOUT
                message = f"No answer after {self._limits.wake_timeout_s:g} s."
                raise Refused(code, phase.name, message) from None

    async def _open(self, host_id: str, wanted: Open, phase: _Phase) -> tuple[Pipe, bytes]:
        line = wanted.encode()
        host = self._hosts.get(host_id)
        for _ in range(OPEN_ATTEMPTS):
            phase.name = "connect"
            pipe = await host.take()
            phase.name = "wake" if isinstance(wanted.to, ToMachine) else "open"
            opening = _Opening(pipe)
            pipe.transport.write(line)
            try:
                early = await opening.answered
            except ConnectionError:
                continue
            except BaseException:
                pipe.reset()
                raise
            return pipe, early
        raise Refused(Code.TUNNEL_BROKEN, "open", f"{OPEN_ATTEMPTS} connections of host {host_id} broke.")


class _Phase:
    name = "connect"


class _Opening:
    """Owns a pipe from OPEN to OPENED."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._lines = LineBuffer()
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        pipe.owner = self
        if pipe.closed:
            self.pipe_lost()

    def pipe_data(self, data: bytes) -> None:
        self._lines.feed(data)
        if self.answered.done():
            return
        try:
            line = self._lines.take_line()
            if line is None:
                return
            self._pipe.opened = check_opened(line)
        except Refused as e:
            self._fail(e)
        except WireError as e:
            self._fail(Refused(Code.TUNNEL_MALFORMED, "open", str(e)))
        else:
            # Reading stops until the next owner is there, so that nothing can fall between the two.
            self._pipe.pause_reading()
            self.answered.set_result(self._lines.take_rest())

    def pipe_eof(self) -> None:
        self._fail(ConnectionResetError("the data connection ended"))

    def pipe_lost(self) -> None:
        self._fail(ConnectionResetError("the data connection was lost"))

    def pipe_full(self, *, full: bool) -> None:
        """Nothing but one short line is written."""

    def _fail(self, error: Exception) -> None:
        if not self.answered.done():
            self._pipe.reset()
            self.answered.set_exception(error)
