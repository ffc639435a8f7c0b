from __future__ import annotations

from pathlib import Path

import pytest

from hosts.vmm import accel
from hosts.vmm.accel import probe
from hosts.vmm.arguments import Accelerator
from hosts.vmm.protocol import VmmError
from tests.hosts.tiny_guest import tiny_guest


class Boots:
    """Stands for the boot itself: says what it is told and counts how often it was asked."""

    def __init__(self, *, works: bool) -> None:
        self.works = works
        self.asked = 0

    async def __call__(self, kernel: Path, accelerator: Accelerator) -> bool:
        assert accelerator is Accelerator.KVM
        self.asked += 1
        return self.works


@pytest.mark.parametrize(("works", "answer"), [(True, Accelerator.KVM), (False, Accelerator.TCG)])
async def test_the_answer_is_found_once_for_this_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, works: bool, answer: Accelerator
) -> None:
    boots = Boots(works=works)
    monkeypatch.setattr(accel, "boots", boots)
    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"one")
    for _ in range(2):
        assert await probe("auto", kernel=kernel, folder=tmp_path / "host") is answer
    assert boots.asked == 1
    kernel.write_bytes(b"another")
    await probe("auto", kernel=kernel, folder=tmp_path / "host")
    assert boots.asked == 2


async def test_a_demanded_kvm_that_does_not_work_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "boots", Boots(works=False))
    (tmp_path / "kernel").touch()
    with pytest.raises(VmmError, match="KVM was demanded"):
        await probe("kvm", kernel=tmp_path / "kernel", folder=tmp_path)


async def test_tcg_is_never_asked_about(tmp_path: Path) -> None:
    assert await probe("tcg", kernel=Path("/nowhere"), folder=tmp_path) is Accelerator.TCG


async def test_a_kept_answer_that_cannot_be_read_is_found_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "boots", Boots(works=True))
    (tmp_path / "kernel").touch()
    for nonsense in (b"", b"{}", b"[1]", b'{"key": 1, "accelerator": "magic"}'):
        (tmp_path / "accelerator.json").write_bytes(nonsense)
        assert await probe("auto", kernel=tmp_path / "kernel", folder=tmp_path) is Accelerator.KVM


@pytest.mark.vm
@pytest.mark.root
async def test_a_real_kernel_boots_to_its_end_or_not_in_time() -> None:
    guest = tiny_guest()
    clock = guest.boot.cmdline.split()[-1]
    assert await accel.boots(guest.kernel, Accelerator.TCG, timeout_s=60, extra_cmdline=clock)
    assert not await accel.boots(guest.kernel, Accelerator.TCG, timeout_s=0.2)
