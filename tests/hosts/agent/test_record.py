"""A machine's files: names that are safe in a path, and no machine made of half of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.agent.record import RECORD_FORMAT, MachineFiles, MachineRecord, OpenSession, RecordError, is_machine_id
from hosts.vmm.protocol import ProcessRecord
from hosts.wire.commands import Failure, Socket, Start, StartReport, Step
from hosts.wire.events import Cause
from hosts.wire.spec import MachineId
from hosts.wire.states import MachineState
from tests.hosts.agent.rig import ID, spec

FULL = MachineRecord(
    format=RECORD_FORMAT,
    state=MachineState.FAILED,
    since_ms=1,
    slot=3,
    process=ProcessRecord(1, 2, "boot"),
    session=OpenSession("s", 4, Cause.REQUEST),
    session_ended_ms=3,
    generation=7,
    port=8080,
    failure=Failure("app:exited", "listening", "why"),
    failed_starts=2,
    retry_at_ms=9,
    proven=True,
    memory_lost="reason",
    base="b" * 64,
    listening=(Socket("::", 80),),
    log_tail=("x",),
    last_start=StartReport(Start.RESUME, Cause.API, "", 5, (Step("cont", 1.5),)),
)


@pytest.mark.parametrize(
    "text", ["", "1" * 31, "1" * 33, "A" * 32, "../" + "1" * 29, "1" * 31 + "\n", "g" * 32, "1" * 32 + "\n"]
)
def test_nothing_but_32_hex_digits_names_a_machine(tmp_path: Path, text: str) -> None:
    assert not is_machine_id(text)
    with pytest.raises(RecordError):
        MachineFiles(tmp_path, MachineId(text))


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    files = MachineFiles(tmp_path, ID)
    files.create(spec(), FULL)
    assert files.load() == (spec(), FULL)
    assert files.folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_without_its_spec_is_no_machine(tmp_path: Path) -> None:
    files = MachineFiles(tmp_path, ID)
    files.folder.mkdir()
    files.save(FULL)
    assert not files.is_whole()


def test_a_record_of_another_format_is_refused(tmp_path: Path) -> None:
    files = MachineFiles(tmp_path, ID)
    files.create(spec(), FULL)
    path = files.folder / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(RecordError, match="format 2"):
        files.load()


def test_a_spec_of_another_machine_is_refused(tmp_path: Path) -> None:
    files = MachineFiles(tmp_path, ID)
    files.create(spec("2" * 32), FULL)
    with pytest.raises(RecordError, match="names 2222"):
        files.load()


def test_removing_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    files = MachineFiles(tmp_path, ID)
    files.create(spec(), FULL)
    (files.folder / "checkpoint").mkdir()
    (files.folder / "checkpoint" / "memory").touch()
    files.remove()
    files.remove()
    assert list(tmp_path.iterdir()) == []
