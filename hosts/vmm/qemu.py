"""QEMU's microvm machines behind the `Vmm` protocol: start, load, adopt, and the few commands of a machine's life.

A VM is only handed out once its QMP socket answers. vCPUs are always stopped when QEMU starts, so nothing of a guest
runs before the caller's next step. Leaving any call early, by an error or by cancellation, leaves no QEMU behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from hosts.net.addresses import check_instance
from hosts.vmm import arguments
from hosts.vmm.arguments import SHAPE, Accelerator
from hosts.vmm.cgroups import Cgroups
from hosts.vmm.console import Console
from hosts.vmm.jail import Jail, prepare
from hosts.vmm.launch import CONSOLE_SOCKET, QMP_SOCKET, Launched, keep_descriptors_home, launch, read_errors
from hosts.vmm.orphans import vmm_processes
from hosts.vmm.process import WatchedProcess, reap_when_done, watch
from hosts.vmm.protocol import NoAnswer, ProcessRecord, StateRefused, VmConfig, VmmError
from hosts.vmm.qmp import Json, Qmp, connect_unix
from tunnel.tasks import spawn

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

LAUNCH_THREADS = 8  # that start QEMUs
START_TIMEOUT_S = 30.0  # fifty QEMUs may be starting at once on two cores
MIGRATION_TIMEOUT_S = 30.0  # writing or reading device state
ADOPT_TIMEOUT_S = 15.0  # one that is taken for hung is ended, and its memory lost
KILL_TIMEOUT_S = 10.0  # a killed QEMU may take to end
CONSOLE_TIMEOUT_S = 5.0  # to its console
FULL_DISK_RETRY_S = 5.0  # a guest stopped by a full disk goes on after this

CAPABILITIES: Json = {
    "capabilities": [
        {"capability": "x-ignore-shared", "state": True},  # memory stays in its file; only device state is written
        {"capability": "events", "state": True},
    ]
}
_CPU_FIELDS = frozenset({"vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"})
_FINISHED = frozenset({"completed", "failed", "cancelled"})


class QemuVm:
    """One QEMU process."""

    def __init__(self, config: VmConfig, process: WatchedProcess, cgroups: Cgroups, pool: ThreadPoolExecutor) -> None:
        self._config = config
        self._process = process
        self._cgroups = cgroups
        self._pool = pool
        self._qmp: Qmp | None = None
        self._console: Console | None = None
        self._errors = -1
        self._meant_to_run = False

    @property
    def record(self) -> ProcessRecord:
        """How to find the process again."""
        return self._process.record

    @property
    def exited(self) -> asyncio.Event:
        """Set when the process has ended, asked or not."""
        return self._process.exited

    async def pause(self) -> None:
        """Stop the vCPUs. Idempotent."""
        self._meant_to_run = False
        await self._execute("stop")

    async def resume(self) -> None:
        """Let the vCPUs run. Idempotent."""
        await self._execute("cont")
        self._meant_to_run = True

    async def is_running(self) -> bool:
        """Whether vCPUs run, as QEMU says."""
        return (await self._status())["running"] is True

    async def save(self, state: Path) -> None:
        """Write device state of a paused VM to `state`, fsynced; on failure the file is gone and the VM as it was."""
        if (await self._status())["status"] == "postmigrate":
            # QEMU saves the same stop only once. The earlier state was not kept, so letting the vCPUs run an instant
            # spends nothing.
            await self.resume()
            await self.pause()
        try:
            fd = os.open(state, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise VmmError(f"saving device state: {e.strerror}") from None
        try:
            await self._migrate("migrate", fd)
            await in_pool(self._pool, os.fsync, fd)
        except OSError as e:
            os.unlink(state)  # noqa: PTH108 - no slower than the close that follows
            raise VmmError(f"saving device state: {e.strerror}") from None
        except BaseException:
            os.unlink(state)  # noqa: PTH108
            raise
        finally:
            os.close(fd)

    async def kill(self) -> None:
        """SIGKILL, wait until the process is gone, and remove its cgroup. Idempotent."""
        if not self._process.watching and not self.exited.is_set():
            again = watch(self.record)  # it was let go of before
            if again is None:
                return
            self._process = again
        self._process.kill()
        await self._process.wait(KILL_TIMEOUT_S)
        self.close()
        await in_pool(self._pool, self._release_cgroup)

    def console_tail(self) -> str:
        """What the guest printed last, also after its end, and what QEMU complained of."""
        text = self._console.tail() if self._console else ""
        if self._errors >= 0 and (errors := read_errors(self._errors)) != "without a word":
            text = f"{text}\n[qemu] {errors}"
        return text

    def close(self) -> None:
        """Let go of the process without ending it. Idempotent."""
        if self._qmp:
            self._qmp.close()
        if self._console:
            self._console.tail()  # drain it
            self._console.close()
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1
        self._process.close()

    async def connect(self, *, errors: int = -1, timeout_s: float) -> None:
        """Open QMP and console. Part of making a VM, not of using one."""
        self._errors = errors
        try:
            self._qmp = await Qmp.connect(self._config.folder / QMP_SOCKET, timeout_s)
            self._qmp.on_event = self._notice
            self._console = Console(await connect_unix(self._config.folder / CONSOLE_SOCKET, CONSOLE_TIMEOUT_S))
        except VmmError as e:
            said = read_errors(errors) if errors >= 0 else ""
            raise VmmError(f"{e}; QEMU ended {said}" if said else str(e)) from None

    async def take_up(self) -> None:
        """After an adoption: a guest that stopped itself over a full disk is one that is meant to run."""
        status = (await self._status())["status"]
        self._meant_to_run = status in {"running", "io-error"}
        if status == "io-error":
            spawn(self._run_on_once_there_is_room(), name=f"disk-{self._config.name}")

    async def name(self) -> str:
        """What the process was started as."""
        answer = await self._execute("query-name")
        return str(answer.get("name", "")) if isinstance(answer, dict) else ""

    async def load(self, state: int) -> None:
        """Read device state; vCPUs stay stopped. Only on a VM started to be loaded."""
        try:
            await self._migrate("migrate-incoming", state)
        except NoAnswer:
            raise  # another time it may be quicker
        except VmmError as e:
            raise StateRefused(str(e)) from None

    def _notice(self, name: str, data: Json) -> None:
        # QEMU stops the guest when the host's disk is full, rather than tell it of a broken disk.
        if name == "BLOCK_IO_ERROR" and data.get("action") == "stop":
            log.error("machine %s: its disk cannot be written (%s)", self._config.name, data.get("reason"))
            spawn(self._run_on_once_there_is_room(), name=f"disk-{self._config.name}")

    async def _run_on_once_there_is_room(self) -> None:
        """Try again every few seconds. An error that lasts stops it again, and this starts anew."""
        await asyncio.sleep(FULL_DISK_RETRY_S)
        with suppress(VmmError):
            if self._meant_to_run and (await self._status())["status"] == "io-error":
                await self._execute("cont")

    def _release_cgroup(self) -> None:
        """Unless the machine's next process is in it by now. One that stays is only litter: the process is gone."""
        try:
            if not self._cgroups.pids(self._config.name) - {self.record.pid}:
                self._cgroups.remove(self._config.name)
        except VmmError as e:
            log.warning("machine %s: %s", self._config.name, e)

    async def _migrate(self, command: str, fd: int) -> None:
        qmp = self._connected()
        await qmp.execute("migrate-set-capabilities", CAPABILITIES)
        await qmp.execute("getfd", {"fdname": "state"}, fd=fd)
        finished = qmp.expect(lambda name, data: name == "MIGRATION" and data.get("status") in _FINISHED)
        await qmp.execute(command, {"uri": "fd:state"})
        try:
            async with asyncio.timeout(MIGRATION_TIMEOUT_S):
                outcome = await finished
        except TimeoutError:
            raise NoAnswer(f"QMP {command}: not done within {MIGRATION_TIMEOUT_S} s") from None
        except VmmError as e:
            said = read_errors(self._errors) if self._errors >= 0 else ""
            raise VmmError(f"QMP {command}: {e} {said}".rstrip()) from None
        if outcome.get("status") != "completed":
            raise VmmError(f"QMP {command}: {await self._migration_error()}")

    async def _migration_error(self) -> str:
        answer = await self._execute("query-migrate")
        return str(answer.get("error-desc", "failed")) if isinstance(answer, dict) else "failed"

    async def _status(self) -> Json:
        answer = await self._execute("query-status")
        if not isinstance(answer, dict) or "running" not in answer or "status" not in answer:
            raise VmmError("QMP query-status: an answer without a status")
        return answer

    async def _execute(self, command: str) -> object:
        return await self._connected().execute(command)

    def _connected(self) -> Qmp:
        if self._qmp is None:
            raise VmmError("not connected")
        return self._qmp


class Qemu:
    """Starts and adopts QEMUs of one instance. Made by `detect`."""

    def __init__(self, *, instance: str, accelerator: Accelerator, jail: Jail, cgroups: Cgroups) -> None:
        self.accelerator = accelerator
        self._instance = check_instance(instance)
        self._jail = jail
        self._cgroups = cgroups
        self._pool = ThreadPoolExecutor(max_workers=LAUNCH_THREADS, thread_name_prefix="vmm")
        keep_descriptors_home()
        self._version = f"qemu {jail.qemu_version} {accelerator} shape {SHAPE}{_host_cpu(accelerator)}"

    @classmethod
    async def detect(cls, *, instance: str, accelerator: Accelerator, folder: Path) -> Qemu:
        """Look at the QEMU that is installed and make its jail below `folder`."""
        jail = await asyncio.to_thread(prepare, folder / "jail")
        return cls(instance=instance, accelerator=accelerator, jail=jail, cgroups=Cgroups.detect(instance))

    @property
    def version(self) -> str:
        """What a snapshot must match to be loaded."""
        return self._version

    def arguments_sha256(self, config: VmConfig) -> str:
        """The hash of all arguments that shape device state."""
        return arguments.sha256(config, self.accelerator)

    async def boot(self, config: VmConfig) -> QemuVm:
        """Start on fresh memory and let the kernel boot; returns once vCPUs run."""
        vm = await self._start(config, incoming=False)
        await _or_kill(vm, vm.resume)
        return vm

    async def load(self, config: VmConfig, state: Path) -> QemuVm:
        """Start on the memory that is there with device state from `state`; returns with vCPUs still stopped."""
        try:
            fd = os.open(state, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            raise VmmError(f"{state.name}: {e.strerror}") from None
        try:
            vm = await self._start(config, incoming=True)
            await _or_kill(vm, lambda: vm.load(fd))
        finally:
            os.close(fd)
        return vm

    async def adopt(self, config: VmConfig, record: ProcessRecord) -> QemuVm | None:
        """Take over a process that outlived the agent. None if it is gone, another process, or hung: then it has been
        killed.
        """
        process = watch(record)
        if process is None:
            return None
        vm = QemuVm(config, process, self._cgroups, self._pool)
        try:
            await vm.connect(timeout_s=ADOPT_TIMEOUT_S)
            if await vm.name() == arguments.process_name(self._instance, config.name):
                await vm.take_up()
                return vm
            vm.close()
        except VmmError as e:
            if record.pid not in {found.record.pid for found in vmm_processes(self._instance)}:
                vm.close()
                return None
            log.warning("machine %s: QEMU %s does not answer and is ended: %s", config.name, record.pid, e)
            await vm.kill()
        except BaseException:
            vm.close()
            raise
        return None

    async def reclaim(self, keep: Collection[ProcessRecord]) -> tuple[str, ...]:
        """End every VMM process of this instance that is not one of `keep`, remove empty cgroups; the names of what
        was ended.
        """
        ended: list[str] = []
        kept_names: set[str] = set()
        for found in await in_pool(self._pool, vmm_processes, self._instance):
            process = watch(found.record)
            if process is None:
                continue
            try:
                if found.record in keep:
                    kept_names.add(found.name)
                    continue
                process.kill()
                await process.wait(KILL_TIMEOUT_S)
                ended.append(found.name)
            finally:
                process.close()
        for name in self._cgroups.names() - kept_names:
            await in_pool(self._pool, self._cgroups.remove, name)
        if not kept_names:
            await in_pool(self._pool, self._cgroups.remove_parent)
        return tuple(ended)

    def close(self) -> None:
        """End the threads; machines go on."""
        self._pool.shutdown(wait=True)

    async def _start(self, config: VmConfig, *, incoming: bool) -> QemuVm:
        try:
            arguments.check(config)
        except ValueError as e:
            raise VmmError(str(e)) from None
        starting = asyncio.get_running_loop().run_in_executor(
            self._pool,
            partial(
                launch, config, self._jail, self.accelerator, self._cgroups, instance=self._instance, incoming=incoming
            ),
        )
        try:
            launched = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(partial(self._abandon, config.name))
            raise
        reap_when_done(launched.jailer_pid)
        process = watch(launched.record)
        if process is None:
            said = read_errors(launched.errors)
            os.close(launched.errors)
            await in_pool(self._pool, self._cgroups.remove, config.name)
            raise VmmError(f"QEMU ended at once: {said}")
        vm = QemuVm(config, process, self._cgroups, self._pool)
        await _or_kill(vm, lambda: vm.connect(errors=launched.errors, timeout_s=START_TIMEOUT_S))
        return vm

    def _abandon(self, name: str, starting: asyncio.Future[Launched]) -> None:
        """A launch that nobody waits for any more has ended: so must what it started."""
        if not starting.cancelled() and not starting.exception():
            spawn(self._end(name, starting.result()), name=f"abandon-{name}")

    async def _end(self, name: str, launched: Launched) -> None:
        os.close(launched.errors)
        reap_when_done(launched.jailer_pid)
        if process := watch(launched.record):
            process.kill()
            await process.wait(KILL_TIMEOUT_S)
        await in_pool(self._pool, self._cgroups.remove, name)


async def in_pool(pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Blocking work on the VMM's own threads, where nothing else can delay a wake."""
    return await asyncio.get_running_loop().run_in_executor(pool, partial(work, *args, **kwargs))


async def _or_kill(vm: QemuVm, step: Callable[[], Awaitable[None]]) -> None:
    """One step of a start; if it fails, or nobody waits for it any more, the process ends."""
    try:
        await step()
    except BaseException:
        await vm.kill()
        raise


def _host_cpu(accelerator: Accelerator) -> str:
    """With KVM a guest saw the host's CPU, so another model or microcode is another VMM."""
    if accelerator is not Accelerator.KVM:
        return ""
    first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    lasting = [line for line in first.splitlines() if line.partition("\t")[0] in _CPU_FIELDS]
    return f" cpu {hashlib.sha256(chr(10).join(lasting).encode()).hexdigest()[:12]}"
