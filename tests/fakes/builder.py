"""A builder that reads its source, says two lines, and ends when it is told to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hosts.builder.builder import BuildPlace, BuildWatch
from hosts.wire.commands import BuildPhase, BuildSpec, BuiltImage, Failure
from hosts.wire.spec import ImageDigest


class FakeBuilder:
    """`hosts.builder.builder.Builder` without a machine."""

    def __init__(self) -> None:
        self.spec = BuildSpec("c" * 32, "blog", 60)
        self.may_end = asyncio.Event()
        self.result: BuiltImage | Failure = BuiltImage(ImageDigest("a" * 64), 1, "python", "python app.py")
        self.running = 0
        self.most_at_once = 0
        self.slots: list[int] = []
        self.bug = False

    async def build(self, spec: BuildSpec, source: Path, place: BuildPlace, watch: BuildWatch) -> BuiltImage | Failure:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self.slots.append(place.slot)
        try:
            assert place.folder.is_dir()
            watch.phase(BuildPhase.BUILDING)
            watch.line(f"got {source.stat().st_size} bytes")
            await self.may_end.wait()
            if self.bug:
                raise RuntimeError("a bug")
            watch.line("built")
            return self.result
        finally:
            self.running -= 1
