"""Starting one jailed QEMU, from the memory file to the running program: blocking work, done on a thread of the VMM's
own pool.

Whatever is acquired on the way is given back if a later step fails. QEMU ends up in a session of its own with no pipe
to the agent that it could die of: it outlives the agent. The lock on the memory file is in a descriptor QEMU
inherits, so it lasts exactly as long as QEMU.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import signal
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hosts.net.addresses import TAP
from hosts.net.namespaces import open_tap
from hosts.vmm import seccomp
from hosts.vmm.arguments import TRANSLATION_BUFFER_MIB, Accelerator, Fd
from hosts.vmm.cgroups import Cgroups, Limits, device_of
from hosts.vmm.jail import BUBBLEWRAP, Jail, memory_file
from hosts.vmm.process import record_of
from hosts.vmm.protocol import ProcessRecord, VmConfig, VmmError
from hosts.vmm.qmp import listen_unix

T = TypeVar("T")

MIB = 1 << 20
QMP_SOCKET = "qmp.sock"
CONSOLE_SOCKET = "console.sock"

JAIL_TIMEOUT_S = 20.0  # a jail may take to stand
BUSY_TIMEOUT_S = 2.0  # a killed QEMU's tap and lock are free a moment after its end
BUSY_POLL_S = 0.005  # between looks

# Beside the guest's memory: QEMU itself, translated code, and page cache of the disks it reads.
OVERHEAD_MIB = 192  # beside a guest's memory
IO_CPUS = 0.5  # beside the vCPUs: disk and network threads
TASKS = 128  # processes and threads of one VMM
IO_BYTES_PER_S = 256 * MIB  # no machine can take a disk for itself
IO_OPERATIONS_PER_S = 4000  # of a machine on a disk
OPEN_FILES = 256  # of one VMM
SIGNALS = 256  # that wait; QEMU's timers count among them
ERROR_BYTES = 8192  # of what it said last

_FIRST_SAFE_FD = 64  # above any descriptor the child wants, so that placing one never overwrites another
_STDERR = 2


@dataclass(frozen=True, slots=True)
class Launched:
    """A QEMU that runs in its jail; nobody has talked to it yet."""

    record: ProcessRecord
    jailer_pid: int  # bubblewrap's outer process: our child, ends with QEMU
    errors: int  # what QEMU writes to its standard error; non-blocking, so a full pipe never stops it


class _ChildFds:
    """Descriptors for the child, by the number they will have there; ours are closed once it runs, or never does."""

    def __init__(self) -> None:
        self.given: dict[int, int] = {}

    def give(self, number: int, fd: int) -> None:
        self.given[number] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_SAFE_FD)
        os.close(fd)

    def close(self) -> None:
        while self.given:
            os.close(self.given.popitem()[1])


def launch(
    config: VmConfig, jail: Jail, accelerator: Accelerator, cgroups: Cgroups, *, instance: str, incoming: bool
) -> Launched:
    """Start QEMU for this config, with vCPUs stopped; VmmError leaves nothing behind but files."""
    try:
        with ExitStack() as undo:
            launched = _launch(config, jail, accelerator, cgroups, undo, instance=instance, incoming=incoming)
            undo.pop_all()
            return launched
    except OSError as e:
        where = f"{e.filename}: " if e.filename else ""
        raise VmmError(f"starting QEMU: {where}{e.strerror or e}") from None


def _launch(
    config: VmConfig,
    jail: Jail,
    accelerator: Accelerator,
    cgroups: Cgroups,
    undo: ExitStack,
    *,
    instance: str,
    incoming: bool,
) -> Launched:
    with ExitStack() as always:
        child = _ChildFds()
        always.callback(child.close)
        child.give(Fd.MEMORY_LOCK, open_memory(config) if incoming else make_memory(config))
        for disk in config.disks:
            if not disk.read_only:
                _hand_over(disk.path, config.uid)
        child.give(Fd.QMP, listen_unix(config.folder / QMP_SOCKET).detach())
        child.give(Fd.CONSOLE, listen_unix(config.folder / CONSOLE_SOCKET).detach())
        child.give(Fd.TAP, _while_busy(lambda: open_tap(config.netns, TAP)))
        errors, errors_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        undo.callback(os.close, errors)
        child.give(_STDERR, errors_write)
        info, info_write = os.pipe2(os.O_CLOEXEC)
        always.callback(os.close, info)
        child.give(Fd.INFO, info_write)
        block, block_write = os.pipe2(os.O_CLOEXEC)
        always.callback(os.close, block_write)
        child.give(Fd.BLOCK, block)
        child.give(Fd.SECCOMP, _readable(seccomp.program()))

        undo.callback(cgroups.remove, config.name)
        cgroups.make(config.name, _limits(config))
        jailer = _spawn(jail.command(config, accelerator, instance=instance, incoming=incoming), child.given)
        undo.callback(_end_jailer, jailer)
        child.close()
        pid = _jailed_pid(info, errors)
        record = record_of(pid)
        if record is None:
            raise VmmError(f"the jail ended at once: {read_errors(errors)}")
        cgroups.admit(config.name, pid)
        _set_limits(pid, config)
        os.write(block_write, b"\n")
        return Launched(record=record, jailer_pid=jailer, errors=errors)


def keep_descriptors_home() -> None:
    """Whatever the agent was started with by its own parent (a log pipe, say) must not reach a QEMU; Python's own
    never do.
    """
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > _STDERR:
            with suppress(OSError):  # the listing's own descriptor is closed by now
                os.set_inheritable(number, False)  # noqa: FBT003 - its second parameter has no name


def make_memory(config: VmConfig) -> int:
    """A fresh memory file, locked, all its blocks reserved; refuses to replace one that a VMM still uses."""
    path = memory_file(config)
    with suppress(FileNotFoundError):
        os.close(_while_busy(lambda: _lock(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))))
        path.unlink()
    fd = _lock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        # QEMU would die of SIGBUS when the disk fills under a sparse file; like this a full disk is a refused start.
        os.posix_fallocate(fd, 0, config.memory_mib * MIB)
        os.fchown(fd, config.uid, config.uid)
    except BaseException:
        os.close(fd)
        path.unlink()
        raise
    return fd


def open_memory(config: VmConfig) -> int:
    """The memory file of a sleeping machine, locked, its holes reserved again; its time stamps stay as the manifest
    has them.
    """
    fd = _while_busy(lambda: _lock(os.open(memory_file(config), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)))
    try:
        before = os.fstat(fd)
        if before.st_size != config.memory_mib * MIB:
            raise VmmError(f"the memory file has {before.st_size} bytes, the machine {config.memory_mib} MiB")
        try:
            os.posix_fallocate(fd, 0, before.st_size)
        finally:  # also where the disk is full: the content is what it was, and the next wake must see that
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.fchown(fd, config.uid, config.uid)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_errors(errors: int) -> str:
    """What QEMU, or the jail before it, said last."""
    try:
        return os.read(errors, ERROR_BYTES).decode(errors="replace").strip() or "without a word"
    except BlockingIOError:
        return "without a word"


def _lock(fd: int) -> int:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise OSError(errno.EBUSY, "another VMM uses this memory") from None
    return fd


def _while_busy(acquire: Callable[[], T]) -> T:
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return acquire()
        except OSError as e:
            if e.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(BUSY_POLL_S)


def _hand_over(path: Path, uid: int) -> None:
    """Give a writable disk to the machine's uid, and only to it."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise VmmError(f"{path.name} is not a regular file")
        os.fchown(fd, uid, uid)
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _spawn(argv: list[str], fds: Mapping[int, int]) -> int:
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)
    ]
    actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in fds.items()]
    # A signal mask or handler of the agent must not reach QEMU, nor a signal sent to the agent's group.
    return os.posix_spawn(
        BUBBLEWRAP,
        argv,
        {},
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT],
    )


def _readable(text: bytes) -> int:
    """A descriptor that `text` can be read from."""
    fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(fd, text)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _jailed_pid(info: int, errors: int) -> int:
    """QEMU's pid, as bubblewrap tells it before it lets the child go on."""
    deadline = time.monotonic() + JAIL_TIMEOUT_S
    poll = select.poll()
    poll.register(info, select.POLLIN)
    text = b""
    while True:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise VmmError(f"the jail was not ready within {JAIL_TIMEOUT_S} s")
        data = os.read(info, ERROR_BYTES)
        text += data
        try:
            return int(json.loads(text)["child-pid"])
        except ValueError:
            if not data:
                raise VmmError(f"the jail failed: {read_errors(errors)}") from None


def _end_jailer(jailer: int) -> None:
    """End a launch that failed: QEMU, or what was to become it, then bubblewrap, our unreaped child."""
    with suppress(OSError):
        for child in Path(f"/proc/{jailer}/task/{jailer}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    os.kill(jailer, signal.SIGKILL)
    os.waitpid(jailer, 0)


def _limits(config: VmConfig) -> Limits:
    return Limits(
        memory_bytes=(config.memory_mib + TRANSLATION_BUFFER_MIB + OVERHEAD_MIB) * MIB,
        cpus=config.vcpus + IO_CPUS,
        tasks=TASKS,
        devices=_devices(config),
        io_bytes_per_s=IO_BYTES_PER_S,
        io_operations_per_s=IO_OPERATIONS_PER_S,
    )


def _devices(config: VmConfig) -> frozenset[str]:
    """The disks that what a guest does can keep busy."""
    paths = (memory_file(config), *(disk.path for disk in config.disks))
    return frozenset(device for path in paths if (device := device_of(path)))


def _set_limits(pid: int, config: VmConfig) -> None:
    """The limits a process carries itself; the largest file it may write is the largest it was given."""
    largest = max([config.memory_mib * MIB, *(disk.path.stat().st_size for disk in config.disks if not disk.read_only)])
    for limit, value in (
        (resource.RLIMIT_CORE, 0),  # a core would hold the guest's memory
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, largest),
        (resource.RLIMIT_NPROC, TASKS),  # its uid is its own, so this holds where no cgroup counts tasks
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, SIGNALS),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ):
        resource.prlimit(pid, limit, (value, value))
