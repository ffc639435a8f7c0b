"""The builds of this host: declared, fed with a source tar that goes straight to disk, run a few at a time.

The work itself is `hosts.builder`'s. A build lives in memory and in one spool folder; an agent that restarts forgets
it, its caller sees `build:unknown` and starts it anew, and `reclaim` removes the folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import structlog

from hosts.agent.durable import Scribe
from hosts.agent.fleet import HostFull, Slots
from hosts.builder.builder import BuildPlace, BuildWatch
from hosts.wire.commands import BuildPhase, BuildReport, BuildSpec, BuiltImage, Failure, Outcome
from tunnel.tasks import spawn

log = structlog.get_logger(__name__)

MAX_SOURCE_BYTES = 512 * 1024 * 1024  # of a build's source
MAX_BUILDS = 64  # kept at a time, finished ones included
MAX_LINES = 20_001  # of a build's log
MAX_LINES_PER_REPORT = 1000  # the next report goes on
CANCEL_TIMEOUT_S = 20.0  # a cancelled build may take to end


class SourceTooLarge(Exception):  # noqa: N818 - reads as the fact it states
    """The source tar is over the limit."""


class BuildWork(Protocol):
    """`hosts.builder.builder.Builder`."""

    async def build(
        self, spec: BuildSpec, source: Path, place: BuildPlace, watch: BuildWatch
    ) -> BuiltImage | Failure: ...


class Build:
    """One build and what is known of it. It is its own `BuildWatch`."""

    def __init__(self, spec: BuildSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.source = folder / "source.tar"
        self.receiving = False
        self.task: asyncio.Task[None] | None = None
        self._phase = BuildPhase.WAITING
        self._told = BuildPhase.WAITING  # the phase of the last report
        self._outcome: Outcome | None = None
        self._failure: Failure | None = None
        self._image: BuiltImage | None = None
        self._lines: list[str] = []
        self._news = asyncio.Event()

    @property
    def started(self) -> bool:
        """Whether its source has arrived."""
        return self.task is not None

    @property
    def ended(self) -> bool:
        """Whether it has an outcome."""
        return self._outcome is not None

    def phase(self, phase: BuildPhase) -> None:
        """The builder goes on to another phase."""
        self._phase = phase
        self._tell()

    def line(self, line: str) -> None:
        """The build wrote a line."""
        if len(self._lines) < MAX_LINES:
            self._lines.append(line)
            self._tell()

    def end(self, result: BuiltImage | Failure | None) -> None:
        """It is over; None means cancelled."""
        self._phase = BuildPhase.DONE
        if isinstance(result, BuiltImage):
            self._outcome, self._image = Outcome.SUCCEEDED, result
        elif result is None:
            self._outcome = Outcome.CANCELLED
        else:
            self._outcome, self._failure = Outcome.FAILED, result
        self._tell()

    async def report(self, *, after: int, wait_s: float) -> BuildReport:
        """Lines from number `after` on; waits for a line, another phase or the end if there is nothing to say yet."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while len(self._lines) <= after and not self.ended and self._phase is self._told:
                    await self._news.wait()
        self._told = self._phase
        lines = tuple(self._lines[after : after + MAX_LINES_PER_REPORT])
        more_to_come = after + len(lines) < len(self._lines)
        return BuildReport(
            build_id=self.spec.build_id,
            phase=self._phase,
            # The end is told with the last lines, never before them.
            outcome=None if more_to_come else self._outcome,
            failure=None if more_to_come else self._failure,
            image=None if more_to_come else self._image,
            lines=lines,
            next=after + len(lines),
        )

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Builds:
    """Declares, runs, cancels and forgets builds."""

    def __init__(
        self, folder: Path, work: BuildWork, *, slots: Slots, uid_of: Callable[[int], int], scribe: Scribe, at_once: int
    ) -> None:
        self._folder = folder
        self._work = work
        self._slots = slots
        self._uid_of = uid_of
        self._scribe = scribe
        self._turns = asyncio.Semaphore(at_once)
        self._builds: dict[str, Build] = {}

    def find(self, build_id: str) -> Build | None:
        """The build of that id."""
        return self._builds.get(build_id)

    async def declare(self, spec: BuildSpec) -> bool:
        """Make room for a build; False if it is there already."""
        if spec.build_id in self._builds:
            return False
        self._forget_oldest()
        build = self._builds[spec.build_id] = Build(spec, self._folder / spec.build_id)
        try:
            await self._scribe.run(build.folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            del self._builds[spec.build_id]
            raise HostFull(f"the build's folder could not be made: {e}") from None
        return True

    async def receive(self, build: Build, chunks: AsyncIterator[bytes]) -> None:
        """Take the source and start; nothing changes if it has been taken. One that broke off may be sent again."""
        if build.started or build.receiving:
            async for _ in chunks:  # read to the end, or the sender would see a reset instead of the answer
                pass
            return
        build.receiving = True
        try:
            await self._spool(build.source, chunks)
            build.task = spawn(self._run(build), name=f"build-{build.spec.build_id}")
        finally:
            build.receiving = False

    async def forget(self, build_id: str) -> None:
        """Cancel it if it runs and remove it; nothing happens if there is none."""
        build = self._builds.pop(build_id, None)
        if build is None:
            return
        if build.task is not None and not build.task.done():
            build.task.cancel()
            await asyncio.wait([build.task], timeout=CANCEL_TIMEOUT_S)
        await self._scribe.run(shutil.rmtree, build.folder, ignore_errors=True)

    async def cancel_all(self) -> None:
        """The agent ends, and builds end with it."""
        for build_id in list(self._builds):
            await self.forget(build_id)

    async def _run(self, build: Build) -> None:
        result: BuiltImage | Failure | None = None
        try:
            async with self._turns:
                result = await self._build(build)
        finally:
            build.end(result)
            with contextlib.suppress(OSError):
                build.source.unlink(missing_ok=True)

    async def _build(self, build: Build) -> BuiltImage | Failure:
        try:
            slot = self._slots.take()
        except HostFull as e:
            return Failure("build:boot", "booting", str(e))
        try:
            uid = self._uid_of(slot)
            place = build.folder / "vm"
            await self._scribe.run(_make_place, place, uid)
            return await self._work.build(build.spec, build.source, BuildPlace(slot, uid, place), build)
        except OSError as e:
            return Failure("build:host", "booting", f"the host could not start the builder: {e}")
        except Exception:  # a bug of ours must end as the build's outcome, or its caller would wait for ever
            log.exception("build.bug", build=build.spec.build_id)
            return Failure("build:host", "booting", "the host agent failed on this build")
        finally:
            self._slots.free(slot)

    async def _spool(self, path: Path, chunks: AsyncIterator[bytes]) -> None:
        fd = await self._scribe.run(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        size = 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > MAX_SOURCE_BYTES:
                    raise SourceTooLarge(f"the source is over {MAX_SOURCE_BYTES} bytes")
                await self._scribe.run(os.write, fd, chunk)
        finally:
            os.close(fd)

    def _forget_oldest(self) -> None:
        ended = [build_id for build_id, build in self._builds.items() if build.ended]
        for build_id in ended[: max(0, len(self._builds) - MAX_BUILDS + 1)]:
            spawn(self.forget(build_id), name=f"forget-{build_id}")
        if len(self._builds) - len(ended) >= MAX_BUILDS:
            raise HostFull(f"{MAX_BUILDS} builds are waiting")


def _make_place(path: Path, uid: int) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, uid, uid)
