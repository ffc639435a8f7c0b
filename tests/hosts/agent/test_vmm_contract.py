"""What every VMM must do, the real one and the fake one the agent's tests run on: one contract, both held to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hosts.net.addresses import GUEST_MAC, machine_uid
from hosts.net.network import Network
from hosts.vmm.arguments import Accelerator
from hosts.vmm.protocol import Boot, Disk, StateRefused, Vm, VmConfig, Vmm, VmmError
from hosts.vmm.qemu import Qemu
from hosts.wire.spec import Egress
from tests.environment import INSTANCE
from tests.fakes.vmm import FakeVmm
from tests.fakes.world import World
from tests.hosts.tiny_guest import tiny_guest

SLOT = 91


@dataclass
class Case:
    """A VMM and a machine it can run."""

    vmm: Vmm
    config: VmConfig

    @property
    def state(self) -> Path:
        return self.config.folder / "state"


def _config(folder: Path, boot: Boot, netns: str, uid: int) -> VmConfig:
    folder.mkdir(mode=0o700)
    disk = folder / "disk"
    disk.write_bytes(b"\0" * (1 << 20))
    return VmConfig("contract", folder, 128, 1, boot, (Disk("data", disk, read_only=False),), GUEST_MAC, netns, uid)


@pytest.fixture
def fake(tmp_path: Path) -> Case:
    none = Path("/nonexistent")
    return Case(FakeVmm(World()), _config(tmp_path / "vm", Boot(none, none, ""), "fake-1", 0))


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Case]:
    network = Network(INSTANCE, ("192.0.2.53",))
    uid = machine_uid(INSTANCE, SLOT)
    namespace = await network.ensure(SLOT, Egress.NONE, uid)
    qemu = await Qemu.detect(instance=INSTANCE, accelerator=Accelerator.TCG, folder=tmp_path)
    yield Case(qemu, _config(tmp_path / "vm", tiny_guest().boot, namespace.name, uid))
    await qemu.reclaim([])
    qemu.close()
    await network.remove(SLOT)
    network.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.vm, pytest.mark.root])])
def case(request: pytest.FixtureRequest) -> Case:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Case)
    return found


async def ended(vm: Vm) -> None:
    async with asyncio.timeout(10):
        await vm.exited.wait()


async def test_a_life_from_boot_to_kill(case: Case) -> None:
    vm = await case.vmm.boot(case.config)
    assert await vm.is_running()
    assert (case.config.folder / "memory").exists()
    for _ in range(2):
        await vm.pause()
        assert not await vm.is_running()
    for _ in range(2):
        await vm.resume()
        assert await vm.is_running()
    assert not vm.exited.is_set()
    for _ in range(2):
        await vm.kill()
        await ended(vm)
    assert isinstance(vm.console_tail(), str)
    with pytest.raises(VmmError):
        await vm.pause()
    for _ in range(2):
        vm.close()


async def test_saved_state_is_loaded_with_vcpus_stopped(case: Case) -> None:
    vm = await case.vmm.boot(case.config)
    await vm.pause()
    await vm.save(case.state)
    await vm.kill()
    again = await case.vmm.load(case.config, case.state)
    assert again.record != vm.record
    assert not await again.is_running()
    await again.resume()
    assert await again.is_running()
    await again.kill()


async def test_a_vm_may_go_on_after_its_state_was_saved(case: Case) -> None:
    vm = await case.vmm.boot(case.config)
    await vm.pause()
    await vm.save(case.state)
    await vm.resume()
    assert await vm.is_running()
    await vm.kill()


async def test_what_is_no_state_is_refused_and_leaves_no_process(case: Case) -> None:
    vm = await case.vmm.boot(case.config)
    await vm.pause()
    await vm.kill()
    case.state.write_bytes(b'{"name": "nobody"}')
    with pytest.raises(StateRefused):
        await case.vmm.load(case.config, case.state)
    again = await case.vmm.boot(case.config)  # the memory is free
    await again.kill()


async def test_a_vm_that_was_let_go_is_adopted_by_its_record(case: Case) -> None:
    vm = await case.vmm.boot(case.config)
    record = vm.record
    vm.close()
    adopted = await case.vmm.adopt(case.config, record)
    assert adopted is not None
    assert adopted.record == record
    assert await adopted.is_running()
    await adopted.kill()
    await ended(adopted)


async def test_only_the_very_process_is_adopted(case: Case) -> None:
    vm = await case.vmm.boot(case.config)
    assert await case.vmm.adopt(case.config, replace(vm.record, start_ticks=vm.record.start_ticks + 1)) is None
    assert await case.vmm.adopt(case.config, replace(vm.record, boot_id="another boot")) is None
    assert await vm.is_running()
    await vm.kill()
    assert await case.vmm.adopt(case.config, vm.record) is None


async def test_equal_configs_have_equal_arguments_and_others_do_not(case: Case) -> None:
    same = case.vmm.arguments_sha256(replace(case.config))
    assert case.vmm.arguments_sha256(case.config) == same
    assert case.vmm.arguments_sha256(replace(case.config, memory_mib=256)) != same
    assert case.vmm.arguments_sha256(replace(case.config, vcpus=2)) != same
    assert case.vmm.version == case.vmm.version != ""
