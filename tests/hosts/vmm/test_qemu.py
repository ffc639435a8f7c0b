"""Real QEMU, real kernel: what a machine's life asks of a VMM."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hosts.net.addresses import machine_uid
from hosts.vmm.console import CONSOLE_BYTES
from hosts.vmm.launch import TASKS
from hosts.vmm.process import record_of
from hosts.vmm.protocol import Disk, StateRefused, VmmError
from hosts.vmm.qemu import Qemu
from tests.hosts.tiny_guest import PORT
from tests.hosts.tiny_machine import BOOT_TIMEOUT_S, MEMORY_MIB, MakeMachine, TinyMachine

MIB = 1 << 20
GONE_TIMEOUT_S = 5.0
FLOOD_S = 3.0

pytestmark = [pytest.mark.vm, pytest.mark.root]


def cgroups_of(instance: str) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").glob(f"**/burrow-{instance}/*") if path.is_dir()]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def namespace_of(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def check_what_is_visible(pid: int) -> None:
    root = Path(f"/proc/{pid}/root")
    assert {path.name for path in root.iterdir()} == {"usr", "lib", "lib64", "dev", "machine", "disks"}
    assert {path.name for path in (root / "dev").iterdir()} == {"null"}
    assert {path.name for path in (root / "machine").iterdir()} == {"memory", "kernel", "initramfs"}
    assert {path.name for path in (root / "disks").iterdir()} == {"data"}
    assert {path.name for path in (root / "usr/bin").iterdir()} == {"qemu-system-x86_64", "setpriv"}
    with pytest.raises(OSError, match="Read-only"):
        (root / "planted").touch()


async def another_agents(qemu: Qemu, instance: str, host_folder: Path) -> Qemu:
    """The VMM as an agent that was just started sees it."""
    return await Qemu.detect(instance=instance, accelerator=qemu.accelerator, folder=host_folder)


async def test_it_boots_stops_goes_on_and_leaves_nothing(make_machine: MakeMachine, instance: str) -> None:
    machine = await make_machine()
    vm = await machine.start()
    await machine.ask("echo hello", timeout_s=BOOT_TIMEOUT_S)
    assert await machine.count() == 1
    assert "tiny guest is up" in vm.console_tail()
    assert await vm.is_running()

    await vm.pause()
    await vm.pause()
    assert not await vm.is_running()
    await vm.resume()
    await vm.resume()
    assert await machine.count() == 2

    assert cgroups_of(instance)
    await vm.kill()
    await vm.kill()
    assert vm.exited.is_set()
    assert record_of(vm.record.pid) is None
    assert not cgroups_of(instance)
    assert "tiny guest is up" in vm.console_tail(), "what a dead guest said last can still be read"


async def test_its_process_has_nothing_but_its_own(make_machine: MakeMachine, instance: str) -> None:
    machine = await make_machine()
    vm = await machine.start()
    pid = vm.record.pid
    status = status_of(pid)
    uid = str(machine_uid(instance, 1))
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {uid}
    assert status["Groups"].strip() == ""
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Seccomp_filters"] == "2", "ours and QEMU's own"
    limits = {line[:26].strip(): line[26:].split()[:2] for line in Path(f"/proc/{pid}/limits").read_text().splitlines()}
    for name, most in (("Max core file size", 0), ("Max processes", TASKS), ("Max locked memory", 0)):
        assert limits[name] == [str(most), str(most)]
    assert limits["Max file size"] == [str(MEMORY_MIB * MIB)] * 2
    for namespace in ("mnt", "pid", "ipc", "uts", "net"):
        assert namespace_of(pid, namespace) != namespace_of(os.getpid(), namespace)

    check_what_is_visible(pid)
    for group in cgroups_of(instance):
        assert str(pid) in (group / "cgroup.procs").read_text().split()


async def test_root_in_the_guest_cannot_write_the_images_it_was_given(
    make_machine: MakeMachine, tmp_path: Path
) -> None:
    machine = await make_machine()
    images = tuple(tmp_path / name for name in ("base", "release"))
    for image in images:
        image.write_bytes(image.name.encode() * 100_000)
        image.chmod(0o666)
    before = [image.read_bytes() for image in images]
    disks = (*machine.config.disks, *(Disk(image.name, image, read_only=True) for image in images))
    machine.config = replace(machine.config, disks=disks)
    vm = await machine.start()
    for image in images:
        device = f"for d in /dev/vd*; do [ $(cat /sys/block/${{d##*/}}/serial) = {image.name} ] && break; done;"
        said = await machine.ask(f"{device} id -u; head -c {len(image.name)} $d", timeout_s=BOOT_TIMEOUT_S)
        assert said.split() == ["0", image.name], "it is root, and can read"
        for attempt in (
            "dd if=/dev/zero of=$d bs=4096 count=1 conv=fsync",
            # The guest's own flag is the guest's to clear; the device must refuse all the same.
            "blockdev --setrw $d && dd if=/dev/zero of=$d bs=4096 count=1 conv=fsync",
            "blockdev --setrw $d && dd if=/dev/zero of=$d bs=512 count=1 oflag=direct",
            "blkdiscard $d",
        ):
            said = await machine.ask(f"{device} {attempt} && echo written")
            assert "written" not in said, said
            assert "error" in said or "not permitted" in said, said
    assert [image.read_bytes() for image in images] == before
    assert await vm.is_running()
    for fd in Path(f"/proc/{vm.record.pid}/fd").iterdir():
        if fd.readlink().name in {"base", "release"}:
            flags = Path(f"/proc/{vm.record.pid}/fdinfo/{fd.name}").read_text().split("flags:\t")[1].split()[0]
            assert int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


async def test_a_guest_that_floods_its_console_costs_no_memory_and_little_time(make_machine: MakeMachine) -> None:
    machine = await make_machine()
    vm = await machine.boot()
    await machine.ask("(while true; do cat /bin/busybox; done) >/dev/ttyS0 2>&1 </dev/null &")
    began = time.process_time()
    await asyncio.sleep(FLOOD_S)
    assert time.process_time() - began < FLOOD_S / 5
    assert CONSOLE_BYTES / 2 < len(vm.console_tail()) <= CONSOLE_BYTES
    assert await machine.count() == 1, "and it is still a guest like any other"


async def test_a_saved_machine_goes_on_in_another_process(make_machine: MakeMachine) -> None:
    machine = await make_machine()
    vm = await machine.boot()
    assert await machine.count() == 1
    # Half a request is sent before the sleep and half after it, on the same socket.
    sock = await machine.namespace.connect(PORT, 5.0)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, b"echo the same ")
    await asyncio.sleep(0.2)

    await vm.pause()
    await vm.save(machine.files.state)
    await vm.kill()
    again = await machine.load()
    assert again.record != vm.record
    assert not await again.is_running()
    await again.resume()

    await loop.sock_sendall(sock, b"connection\n")
    async with asyncio.timeout(15):
        assert await loop.sock_recv(sock, 4096) == b"the same connection\n"
    sock.close()
    assert await machine.count() == 2


async def test_a_running_machine_can_be_saved_twice(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = await make_machine()
    vm = await machine.start()
    await vm.pause()
    await vm.save(tmp_path / "one")
    await vm.save(tmp_path / "two")
    await vm.resume()
    assert await vm.is_running()


async def test_another_agent_adopts_what_runs(
    make_machine: MakeMachine, qemu: Qemu, instance: str, host_folder: Path
) -> None:
    machine = await make_machine()
    vm = await machine.start()
    record = vm.record
    vm.close()
    other = await another_agents(qemu, instance, host_folder)
    try:
        assert await other.adopt(machine.config, replace(record, start_ticks=record.start_ticks + 1)) is None
        assert await other.adopt(machine.config, replace(record, boot_id="another boot")) is None
        assert await other.adopt(replace(machine.config, name="someone-else"), record) is None

        adopted = await other.adopt(machine.config, record)
        assert adopted is not None
        machine.vms.append(adopted)
        assert await adopted.is_running()
        assert await other.reclaim([record]) == ()
        assert not adopted.exited.is_set()

        with pytest.raises(VmmError, match="another VMM uses this memory"):
            await other.boot(machine.config)
        assert await adopted.is_running(), "a second start harms nothing"

        adopted.close()
        assert await other.reclaim([]) == ("tiny-1",), "and what nobody remembers is ended"
        assert record_of(record.pid) is None
        assert not cgroups_of(instance)
    finally:
        other.close()


async def test_a_qemu_that_hangs_is_ended_rather_than_adopted(
    make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hosts.vmm.qemu.ADOPT_TIMEOUT_S", 0.3)
    machine = await make_machine()
    vm = await machine.start()
    record = vm.record
    vm.close()
    os.kill(record.pid, signal.SIGSTOP)
    assert await machine.qemu.adopt(machine.config, record) is None
    assert record_of(record.pid) is None


async def test_a_crash_of_qemu_is_noticed(make_machine: MakeMachine) -> None:
    machine = await make_machine()
    vm = await machine.start()
    os.kill(vm.record.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        await vm.exited.wait()
    with pytest.raises(VmmError):
        await vm.is_running()


async def test_a_state_that_is_none_is_refused(make_machine: MakeMachine) -> None:
    machine = await make_machine()
    vm = await machine.start()
    await vm.kill()
    machine.files.state.write_bytes(b"not a device state" * 100)
    with pytest.raises(StateRefused):
        await machine.load()
    assert_no_process(machine)


async def test_a_start_that_cannot_be_leaves_nothing(make_machine: MakeMachine, instance: str) -> None:
    machine = await make_machine()
    for broken in (
        replace(machine.config, netns="no-such-namespace"),
        replace(machine.config, boot=replace(machine.config.boot, kernel=Path("/nowhere/kernel"))),
        replace(machine.config, boot=replace(machine.config.boot, kernel=machine.files.disk)),
        replace(machine.config, name="no good/name"),
    ):
        with pytest.raises(VmmError):
            await machine.qemu.boot(broken)
    machine.files.memory.unlink(missing_ok=True)
    machine.files.state.touch()
    with pytest.raises(VmmError, match="memory"):
        await machine.load()
    machine.files.memory.write_bytes(b"far too short")
    with pytest.raises(VmmError, match="13 bytes"):
        await machine.load()
    assert_no_process(machine)
    assert not cgroups_of(instance)


async def test_a_cancelled_start_leaves_nothing(make_machine: MakeMachine, qemu: Qemu) -> None:
    machine = await make_machine()
    for after_s in (0.005, 0.03, 0.1):
        async with asyncio.TaskGroup() as group:
            boot = group.create_task(machine.qemu.boot(machine.config))
            await asyncio.sleep(after_s)
            boot.cancel()
    await asyncio.sleep(0.3)  # what was started by then ends by itself
    await qemu.reclaim(())
    assert_no_process(machine)


def assert_no_process(machine: TinyMachine) -> None:
    """None is left, or soon will be: the jail's outer process takes a moment to see that QEMU ended."""
    wanted = f":{machine.config.name}\0".encode()
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while left := [p for p in Path("/proc").glob("[0-9]*/cmdline") if wanted in (line := _read(p)) and b"qemu" in line]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
