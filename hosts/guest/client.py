"""The host's end of the guest agent's wire: one JSON line each way over TCP, one connection per call.

Nothing is kept open between calls: a checkpoint or a fork holds its own idea of every connection, and a resumed guest
would meet one from another past. Whatever comes back is checked (`answers`) before anything is done with it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from hosts.guest import contract
from hosts.guest.answers import (
    MAX_PORT,
    Answer,
    ExecResult,
    GuestError,
    GuestStatus,
    Hello,
    Listening,
    LogPage,
    NotListening,
)
from hosts.wire.commands import Step
from hosts.wire.spec import Process

OpenSocket = Callable[[float], Awaitable[socket.socket]]
WallClock = Callable[[], int]  # Unix time in milliseconds; read right before it is sent

AGENT_PORT = 1
CALL_TIMEOUT_S = 5.0  # a question to a guest agent, unless another is named
CONNECT_TIMEOUT_S = 2.0  # to a guest agent
HELLO_RETRY_S = 0.04  # between attempts to reach a guest that boots
# While a guest boots its network is not there and a SYN is lost, to be sent again a second later: ask anew much sooner.
HELLO_ATTEMPT_S = 0.25  # one such attempt
MARGIN_S = 2.0  # how much longer than the agent's own deadline an answer is waited for
MAX_ANSWER_BYTES = 8 * 1024 * 1024  # of a guest agent's answer
MAX_EXEC_OUTPUT_CHARS = 256 * 1024  # of a command's output in a guest
MAX_HOSTNAME_CHARS = 63  # of a guest

__all__ = [
    "AGENT_PORT",
    "ExecResult",
    "GuestClient",
    "GuestError",
    "GuestStatus",
    "Hello",
    "Listening",
    "LogPage",
    "NotListening",
    "OpenSocket",
]


class GuestClient:
    """Asks one machine's guest agent."""

    def __init__(self, open_socket: OpenSocket, open_datagrams: OpenSocket) -> None:
        self._open_socket = open_socket  # to the agent
        self._open_datagrams = open_datagrams  # to the responder

    async def hello(self, timeout_s: float) -> Hello:
        """Ask until the agent answers: at a boot it is not there yet."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        answer = await self._ask({"op": "hello"}, HELLO_ATTEMPT_S)
                        return Hello(answer.number("agent"), answer.phase(), answer.number("up_ms"))
                    except GuestError as e:
                        if e.code not in ("guest:unreachable", "guest:timeout"):
                            raise
                    await asyncio.sleep(HELLO_RETRY_S)
        except TimeoutError:
            raise GuestError("guest:timeout", f"the guest agent did not answer within {timeout_s:g} s") from None

    async def start(
        self,
        process: Process,
        *,
        hostname: str,
        clock_ms: WallClock,
        entropy: bytes,
        nameservers: Sequence[str] = (),
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Set clock, randomness and name, then start the app. The same again changes nothing."""
        await self._call(
            {
                "op": "start",
                "command": process.command,
                "cwd": process.cwd,
                "env": dict(process.env),
                "port": process.port,
                "hostname": hostname[:MAX_HOSTNAME_CHARS],
                "nameservers": list(nameservers),
                "entropy": b64encode(entropy).decode(),
            },
            timeout_s,
            clock_ms,
        )

    async def await_listening(self, timeout_s: float) -> Listening | NotListening:
        """Wait until the app is served somewhere, has ended, or the time is up."""
        answer = await self._ask({"op": "await_listening", "timeout_s": timeout_s}, timeout_s + MARGIN_S)
        if answer.ok:
            return Listening(answer.number("port", low=1, high=MAX_PORT), answer.sockets())
        code = answer.text("code", default="")
        if code not in ("check:not_listening", "app:exited"):
            raise answer.error()
        return NotListening(
            code=code,
            message=answer.text("message"),
            listening=answer.sockets(),
            log_tail=answer.lines("log_tail"),
            exit_code=answer.number_or_none("exit_code", low=-64, high=255),
        )

    async def resume(
        self, *, clock_ms: WallClock, entropy: bytes, timeout_s: float = CALL_TIMEOUT_S
    ) -> tuple[Step, ...]:
        """Meet the resume contract, then call the app's hook where it has one.

        GuestError when clock or randomness could not be set: no request may reach the app.
        """
        try:
            sock = await self._open_datagrams(timeout_s)
        except OSError as e:
            raise GuestError("guest:unreachable", f"the guest cannot be reached: {e.strerror or e}") from None
        with sock:
            met = await contract.meet(sock, clock_ms=clock_ms, entropy=entropy, timeout_s=timeout_s)
        return met.steps + await self.hook(timeout_s) if met.hook else met.steps

    async def hook(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[Step, ...]:
        """Call the app's `after_resume`, if it has one. Its failure is a step and a line in the log, no error."""
        return (await self._call({"op": "hook"}, timeout_s)).steps()

    async def status(self, timeout_s: float = CALL_TIMEOUT_S) -> GuestStatus:
        """How the app is."""
        answer = await self._call({"op": "status"}, timeout_s)
        return GuestStatus(
            phase=answer.phase(),
            pid=answer.number_or_none("pid"),
            restarts=answer.number("restarts"),
            exit_code=answer.number_or_none("exit_code", low=-64, high=255),
            port=answer.number_or_none("port", low=1, high=MAX_PORT),
            listening=answer.sockets(),
        )

    async def logs(self, after: int = 0, timeout_s: float = CALL_TIMEOUT_S) -> LogPage:
        """The app's output from line number `after` on."""
        answer = await self._call({"op": "logs", "after": after}, timeout_s)
        return LogPage(answer.lines("lines"), answer.number("next"))

    async def sync(self, timeout_s: float = 10.0, *, drop_caches: bool = False) -> None:
        """Have the guest write its disks out (before a suspend, a checkpoint, an end)."""
        await self._call({"op": "sync", "drop_caches": drop_caches}, timeout_s)

    async def stop(self, grace_s: float = 5.0) -> None:
        """End the app: SIGTERM, after the grace SIGKILL."""
        await self._call({"op": "stop", "grace_s": grace_s}, grace_s + MARGIN_S)

    async def exec(self, command: str, timeout_s: float = 30.0) -> ExecResult:
        """Run a shell command beside the app, as the app's user.

        The output is the stranger's: show it through `sanitise`.
        """
        answer = await self._call({"op": "exec", "command": command, "timeout_s": timeout_s}, timeout_s + MARGIN_S)
        return ExecResult(
            answer.number("exit_code", low=-64, high=255),
            answer.block("output", MAX_EXEC_OUTPUT_CHARS),
            answer.flag("timed_out"),
        )

    async def build(
        self, job: dict[str, object], *, clock_ms: WallClock, entropy: bytes, nameservers: Sequence[str]
    ) -> AsyncGenerator[dict[str, object], None]:
        """Run a build in a builder machine and yield its news as they come. The caller's time-out bounds it."""
        request = {
            "op": "build",
            "job": job,
            "entropy": b64encode(entropy).decode(),
            "nameservers": list(nameservers),
        }
        async with self._connection() as (reader, writer):
            writer.write(json.dumps({**request, "clock_ms": clock_ms()}).encode() + b"\n")
            while True:
                news = await _read_object(reader)
                if "ended" in news or news.get("ok") is False:
                    if news.get("ok") is False:
                        raise Answer(news).error()
                    return
                yield news
                await asyncio.sleep(0)  # what is in the buffer already is read without a wait: others must have turns

    async def _call(self, request: dict[str, object], timeout_s: float, clock_ms: WallClock | None = None) -> Answer:
        answer = await self._ask(request, timeout_s, clock_ms)
        if not answer.ok:
            raise answer.error()
        return answer

    async def _ask(self, request: dict[str, object], timeout_s: float, clock_ms: WallClock | None = None) -> Answer:
        try:
            async with asyncio.timeout(timeout_s), self._connection(timeout_s) as (reader, writer):
                if clock_ms is not None:  # read now that the connection stands
                    request = {**request, "clock_ms": clock_ms()}
                writer.write(_line(request))
                return Answer(await _read_object(reader))
        except TimeoutError:
            raise GuestError("guest:timeout", f"no answer to `{request['op']}` within {timeout_s:g} s") from None

    @asynccontextmanager
    async def _connection(
        self, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        try:
            sock = await self._open_socket(timeout_s)
            reader, writer = await asyncio.open_connection(sock=sock, limit=MAX_ANSWER_BYTES)
        except TimeoutError:
            raise GuestError("guest:timeout", "the guest does not take connections") from None
        except OSError as e:
            raise GuestError("guest:unreachable", f"the guest agent cannot be reached: {e.strerror or e}") from None
        try:
            yield reader, writer
        except ConnectionError as e:
            raise GuestError("guest:unreachable", f"the guest agent broke off: {e.strerror or e}") from None
        finally:
            writer.transport.abort()


def _line(request: dict[str, object]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode() + b"\n"


async def _read_object(reader: asyncio.StreamReader) -> dict[str, object]:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        raise GuestError("guest:unreachable", "the guest agent closed the connection without an answer") from None
    except asyncio.LimitOverrunError:
        raise GuestError("guest:bad_answer", "the guest agent's answer is too long") from None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise GuestError("guest:bad_answer", "the guest agent's answer is not a JSON object")
    return value
