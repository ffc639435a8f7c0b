"""What is kept on disk about one machine: its spec and one record of everything that changes, each replaced atomically.

Both live in the machine's folder, which is root's; a VMM sees no folder of the host, so a guest that broke out of
QEMU cannot rewrite what the agent believes. The record is what the agent knows after a restart; `recover` compares it
with what it finds.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from hosts.agent.durable import make_folder, replace_file, sync_folder
from hosts.vmm.protocol import ProcessRecord
from hosts.wire.codec import WireError, decode, encode
from hosts.wire.commands import Failure, Socket, StartReport
from hosts.wire.events import Cause
from hosts.wire.spec import MachineId, MachineSpec
from hosts.wire.states import MachineState

RECORD_FORMAT = 1

_MACHINE_ID = re.compile(r"[0-9a-f]{32}")


class RecordError(Exception):
    """A machine's files cannot be read as a machine; the text says why."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The session a machine is running in: what is billed until it closes."""

    session_id: str
    started_at_ms: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """Everything of a machine that changes. Replaced whole, never edited."""

    format: int
    state: MachineState
    since_ms: int
    slot: int
    process: ProcessRecord | None = None
    session: OpenSession | None = None
    session_ended_ms: int = 0  # the end of the last one: the next may not start earlier, whatever the wall clock does
    generation: int = 0  # of the snapshot it sleeps in, for people who compare it with the manifest
    port: int | None = None  # where the app was found listening
    failure: Failure | None = None
    failed_starts: int = 0  # in a row
    retry_at_ms: int = 0  # no cold boot for a request before this
    proven: bool = False  # was ready once: a later failed start may be bad luck, a first one is the app's fault
    memory_lost: str = ""  # why the next start is a cold boot, where that is news; told in its StartReport
    base: str = ""  # digest of kernel, initramfs and base image the present memory was booted from
    listening: tuple[Socket, ...] = ()
    log_tail: tuple[str, ...] = ()  # of a failed start
    last_start: StartReport | None = None


def is_machine_id(text: str) -> bool:
    """Whether `text` may name a machine's folder."""
    return _MACHINE_ID.fullmatch(text) is not None


class MachineFiles:
    """The paths of one machine and how its spec and record are read and written (blocking: call on a scribe thread)."""

    def __init__(self, machines: Path, machine_id: MachineId) -> None:
        if not is_machine_id(machine_id):
            raise RecordError(f"{machine_id!r} is not a machine id")
        self.folder = machines / machine_id

    @property
    def _spec(self) -> Path:
        return self.folder / "spec.json"

    @property
    def _record(self) -> Path:
        return self.folder / "state.json"

    def create(self, spec: MachineSpec, record: MachineRecord) -> None:
        """Make the folder. The record goes first: a folder with a spec is a whole machine."""
        make_folder(self.folder)
        self.save(record)
        self.save_spec(spec)

    def save_spec(self, spec: MachineSpec) -> None:
        """Replace the spec (only its policy ever changes)."""
        replace_file(self._spec, encode(spec))

    def save(self, record: MachineRecord) -> None:
        """Replace the record."""
        replace_file(self._record, encode(record))

    def is_whole(self) -> bool:
        """Whether there is a machine in the folder."""
        return self._spec.exists()

    def load(self) -> tuple[MachineSpec, MachineRecord]:
        """Read both, or RecordError."""
        try:
            spec = decode(MachineSpec, self._spec.read_bytes())
            record = decode(MachineRecord, self._record.read_bytes())
        except (OSError, WireError) as e:
            raise RecordError(f"{self.folder.name}: {e}") from None
        if record.format != RECORD_FORMAT:
            raise RecordError(f"{self.folder.name}: record format {record.format}, this agent knows {RECORD_FORMAT}")
        if spec.machine_id != self.folder.name:
            raise RecordError(f"{self.folder.name}: its spec names {spec.machine_id}")
        return spec, record

    def remove(self) -> None:
        """Remove everything. The spec goes first: what is left of a half-removed machine is no machine."""
        self._spec.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        if self.folder.parent.exists():
            sync_folder(self.folder.parent)
