"""Real machines for tests of the host: a network, a VMM, and as many tiny guests as a test asks for. All go again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hosts.net.network import Network
from hosts.snapshots.files import SnapshotFiles
from hosts.vmm.arguments import Accelerator
from hosts.vmm.qemu import Qemu
from tests.hosts.tiny_machine import MakeMachine, TinyMachine


@pytest.fixture(scope="session")
def host_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the whole run: making a jail copies fifty megabytes."""
    return tmp_path_factory.mktemp("host")


@pytest.fixture
def instance() -> str:
    return os.environ["BURROW_INSTANCE"]


@pytest.fixture
def nameserver(instance: str) -> str:
    """In a private range, and another one in every run: two may be under way on one machine."""
    number = int(instance, 16) % 0xFFFF
    return f"10.253.{number >> 8}.{number & 0xFF}"


@pytest.fixture
async def network(instance: str, nameserver: str) -> AsyncIterator[Network]:
    network = Network(instance, (nameserver,))
    yield network
    await network.reclaim(frozenset())
    network.close()


@pytest.fixture
async def qemu(instance: str, host_folder: Path) -> AsyncIterator[Qemu]:
    qemu = await Qemu.detect(instance=instance, accelerator=Accelerator.TCG, folder=host_folder)
    yield qemu
    await qemu.reclaim(())
    qemu.close()


@pytest.fixture
async def make_machine(
    network: Network, qemu: Qemu, instance: str, tmp_path: Path, host_folder: Path
) -> AsyncIterator[MakeMachine]:
    """Make a machine that is not started yet."""
    made: list[TinyMachine] = []

    async def make(name: str = "a", *, slot: int = 1, folder: Path | None = None) -> TinyMachine:
        machine = await TinyMachine.make(
            network=network,
            qemu=qemu,
            instance=instance,
            slot=slot,
            folder=folder or tmp_path / name,
            booted=SnapshotFiles(host_folder / "booted"),
        )
        made.append(machine)
        return machine

    yield make
    for machine in made:
        await machine.end()
