"""A VM that only ever stands still: enough for everything about a snapshot that is files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hosts.snapshots.files import Identity, SnapshotFiles
from hosts.vmm.protocol import ProcessRecord, VmmError
from hosts.wire.spec import ImageDigest, MachineId

IDENTITY = Identity(
    machine_id=MachineId("a" * 32),
    vmm_version="qemu 7.2 tcg",
    arguments_sha256="b" * 64,
    base="c" * 64,
    image=ImageDigest("d" * 64),
)
NOW_MS = 1_700_000_000_000


class StillVm:
    """Saves what it is told to, or fails as told; remembers whether it was ended."""

    def __init__(self, state: bytes = b"device state", *, fails: str = "", running: bool = True) -> None:
        self.state = state
        self.fails = fails
        self.running = running
        self.calls: list[str] = []
        self._exited = asyncio.Event()

    @property
    def record(self) -> ProcessRecord:
        return ProcessRecord(1, 1, "boot")

    @property
    def exited(self) -> asyncio.Event:
        return self._exited

    async def pause(self) -> None:
        self.calls.append("pause")
        self.running = False

    async def resume(self) -> None:
        self.calls.append("resume")
        self.running = True

    async def is_running(self) -> bool:
        return self.running

    async def save(self, state: Path) -> None:
        self.calls.append("save")
        if self.fails == "save":
            raise VmmError("no space left")
        state.write_bytes(self.state)

    async def kill(self) -> None:
        self.calls.append("kill")
        if self.fails == "kill":
            raise VmmError("it will not end")
        self._exited.set()

    def console_tail(self) -> str:
        return ""

    def close(self) -> None:
        return


def machine_files(folder: Path, *, memory: bytes = b"", disk: bytes = b"a disk") -> SnapshotFiles:
    """A machine's folder with a sparse memory file of 1 MiB."""
    folder.mkdir(mode=0o700, exist_ok=True)
    files = SnapshotFiles(folder)
    with files.memory.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(300_000)
        file.write(memory or b"what the guest remembers")
    files.disk.write_bytes(disk)
    return files
