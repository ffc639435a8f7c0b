"""Removes what an agent that died left behind and nobody owns: processes, namespaces, cgroups, build folders.

Runs once at the start, after `recover` has said what is owned and before anything new is made.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import structlog

from hosts.agent.durable import Scribe
from hosts.agent.machine import Machine
from hosts.agent.parts import Network
from hosts.vmm.protocol import ProcessRecord

log = structlog.get_logger(__name__)


class Processes(Protocol):
    """`hosts.vmm.qemu.Qemu`."""

    async def reclaim(self, keep: Collection[ProcessRecord]) -> tuple[str, ...]: ...


class ImageFiles(Protocol):
    """`hosts.disk.images.ImageStore`."""

    def reclaim(self) -> None: ...


async def reclaim(
    machines: list[Machine], *, processes: Processes, network: Network, images: ImageFiles, builds: Path, scribe: Scribe
) -> None:
    """Remove everything that is not one of `machines`'s."""
    # Processes first: a namespace is not gone before the last process in it is.
    ended = await processes.reclaim([machine.vm.record for machine in machines if machine.vm is not None])
    removed = await network.reclaim(frozenset(machine.history.record.slot for machine in machines))
    await scribe.run(shutil.rmtree, builds, ignore_errors=True)
    await scribe.run(images.reclaim)
    if ended or removed:
        log.info("reclaim.done", processes=list(ended), slots=sorted(removed))
