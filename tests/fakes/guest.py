"""A guest agent's client that reaches into the fake world instead of speaking JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from hosts.guest.client import GuestError, GuestStatus, Hello, Listening, LogPage, NotListening
from hosts.wire.commands import Socket, Step
from hosts.wire.spec import Process as AppProcess
from tests.fakes.network import GuestSocket
from tests.fakes.world import App, Process, World


class FakeGuest:
    """`Guest` of whatever process runs at the end of `open_socket`."""

    def __init__(self, world: World, open_socket: Callable[[float], Awaitable[object]]) -> None:
        self._world = world
        self._open = open_socket

    async def hello(self, timeout_s: float) -> Hello:
        process = await self._process(timeout_s)
        if self._app(process).hello_hangs:
            await self._hang(timeout_s)
        return Hello(agent=1, phase="idle", up_ms=1)

    async def start(
        self,
        process: AppProcess,
        *,
        hostname: str,
        clock_ms: Callable[[], int],
        entropy: bytes,
        nameservers: Sequence[str] = (),
        timeout_s: float = 5.0,
    ) -> None:
        memory = (await self._process()).memory
        memory.started = True
        memory.clock_ms = clock_ms()
        memory.entropy.append(entropy)
        memory.lines.append(f"started {process.command}")

    async def await_listening(self, timeout_s: float) -> Listening | NotListening:
        process = await self._process(timeout_s)
        app = self._app(process)
        log = tuple(process.memory.lines)
        if app.exit_code is not None:
            return NotListening("app:exited", f"the app ended with exit code {app.exit_code}", (), log, app.exit_code)
        if not app.listens:
            found = (Socket("127.0.0.1", 9999),)
            return NotListening(
                "check:not_listening", "nothing listens on port 8080; 127.0.0.1:9999 does", found, log, None
            )
        return Listening(app.port, (Socket("0.0.0.0", app.port),))  # noqa: S104 - an address seen, not bound

    async def resume(self, *, clock_ms: Callable[[], int], entropy: bytes, timeout_s: float = 5.0) -> tuple[Step, ...]:
        process = await self._process(timeout_s)
        app = self._app(process)
        if app.resume_hangs:
            await self._hang(timeout_s)
        if app.resume_error:
            raise GuestError("guest:refused", app.resume_error)
        process.memory.clock_ms = clock_ms()
        process.memory.entropy.append(entropy)
        process.memory.resumes += 1
        return (Step("clock", 0.1), Step("entropy", 0.1))

    async def status(self, timeout_s: float = 5.0) -> GuestStatus:
        app = self._app(await self._process(timeout_s))
        port = app.port if app.listens else None
        return GuestStatus(phase="running", pid=7, restarts=0, exit_code=None, port=port, listening=())

    async def logs(self, after: int = 0) -> LogPage:
        lines = (await self._process()).memory.lines
        return LogPage(tuple(lines[after:]), len(lines))

    async def sync(self, timeout_s: float = 10.0, *, drop_caches: bool = False) -> None:
        await self._process(timeout_s)

    async def _process(self, timeout_s: float = 0.5) -> Process:
        try:
            sock = await self._open(timeout_s)
        except (OSError, TimeoutError) as e:
            raise GuestError("guest:unreachable", f"no connection: {e}") from None
        assert isinstance(sock, GuestSocket)
        process = sock.process
        sock.close()
        return process

    async def _hang(self, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, 0.2))
        raise GuestError("guest:timeout", "no answer")

    def _app(self, process: Process) -> App:
        return self._world.app(process.config.name)
