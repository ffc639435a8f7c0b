"""Real machines for tests of the host: a network, a VMM and as many tiny guests as a test asks for, all gone afterwards."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hosts.net.network import Network
from hosts.vmm.arguments import Accelerator
from hosts.vmm.qemu import Qemu
from tests.hosts.tiny_machine import MakeMachine, TinyMachine

NAMESERVER = "10.255.255.53"


@pytest.fixture(scope="session")
def host_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the whole run: making a jail copies fifty megabytes."""
    return tmp_path_factory.mktemp("host")


@pytest.fixture
def instance() -> str:
    return os.environ["BURROW_INSTANCE"]


@pytest.fixture
async def network(instance: str) -> AsyncIterator[Network]:
    network = Network(instance, (NAMESERVER,))
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
async def make_machine(network: Network, qemu: Qemu, instance: str, tmp_path: Path) -> AsyncIterator[MakeMachine]:
    """Make a machine that is not started yet."""
    made: list[TinyMachine] = []

    async def make(name: str = "a", *, slot: int = 1, folder: Path | None = None) -> TinyMachine:
        machine = await TinyMachine.make(
            network=network, qemu=qemu, instance=instance, slot=slot, folder=folder or tmp_path / name
        )
        made.append(machine)
        return machine

    yield make
    for machine in made:
        await machine.end()
