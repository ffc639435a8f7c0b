"""Finding this instance's QEMUs without any record of them, for the agent that died between starting one and noting it.

A process counts only if it runs under a uid of this instance and calls itself by this instance's name; neither can be
had by a guest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hosts.net.addresses import MAX_SLOTS, machine_uid
from hosts.vmm.arguments import process_name
from hosts.vmm.process import record_of
from hosts.vmm.protocol import ProcessRecord


@dataclass(frozen=True, slots=True)
class FoundVmm:
    """A running VMM process of this instance."""

    record: ProcessRecord
    name: str  # as in VmConfig.name


def vmm_processes(instance: str) -> list[FoundVmm]:
    """All VMM processes of the instance (blocking: walks /proc)."""
    return list(_walk(instance))


def _walk(instance: str) -> Iterator[FoundVmm]:
    first_uid = machine_uid(instance, 0)
    uids = range(first_uid, first_uid + MAX_SLOTS)
    prefix = process_name(instance, "")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "-name" not in arguments or _uid(folder) not in uids:
                continue
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        name = arguments[arguments.index("-name") + 1]
        record = record_of(int(folder.name))
        if record is not None and name.startswith(prefix):
            yield FoundVmm(record=record, name=name.removeprefix(prefix))


def _uid(folder: Path) -> int:
    for line in (folder / "status").read_text().splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return -1
