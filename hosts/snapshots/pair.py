"""A machine's memory and device state while it sleeps: taken, checked, loaded once, and spent.

The order is what makes a crash at any line harmless. Taking: device state beside its place, manifest, state into its
place, all durable, and only then does QEMU end. Loading: everything checked, QEMU started with vCPUs stopped, state
removed durably, and only then may the caller let the vCPUs run. A second load of a pair whose memory moved on would
give a guest that oopses while QEMU says "running".
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import ParamSpec, TypeVar

import structlog

from hosts.snapshots.files import (
    Identity,
    SnapshotFailed,
    SnapshotFiles,
    SnapshotRefused,
    raise_if_passing,
    read_manifest,
    stamp,
    sync,
    write_manifest,
)
from hosts.snapshots.hashing import Stopped, memory_sha256, punch, state_sha256
from hosts.vmm.process import current_boot_id
from hosts.vmm.protocol import StateRefused, Vm, VmConfig, Vmm, VmmError
from hosts.wire.manifest import MANIFEST_FORMAT, Manifest

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)

# A wake waits for these threads, so nothing long is done on them; hashing has one of its own.
_pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="snapshot")
_hasher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hasher")
HASHER_NICENESS = 19
PUNCH_BYTES = 8 << 20
IN_USE_WAIT_S = 2.0  # a killed VMM may hold its files
IN_USE_POLL_S = 0.005  # between looks


async def suspend(vm: Vm, files: SnapshotFiles, identity: Identity, *, now_ms: int) -> Manifest:
    """Put a VM to sleep for good: its process is ended when this returns. SnapshotFailed leaves it paused and alive."""
    try:
        await vm.pause()
        await spend(files)
        await vm.save(files.state_being_written)
        manifest = await in_pool(describe, files, identity, now_ms=now_ms, generation=await next_generation(files))
        await in_pool(commit, files)
    except (VmmError, OSError) as e:
        await _discard(files)
        raise SnapshotFailed(f"the machine's state could not be saved: {e}") from e
    except BaseException:
        await _discard(files)
        raise
    try:
        await vm.kill()
    except VmmError as e:
        # It is dying, however slowly, and its vCPUs stand still: the pair is all there will be of the machine. Until
        # the lock on the memory is free, nobody can load it.
        log.warning("snapshot.vmm_lingers", machine=identity.machine_id, error=str(e))
    return manifest


async def verify(files: SnapshotFiles, identity: Identity) -> Manifest:
    """Check everything that can be checked without a VMM, or SnapshotRefused. Changes nothing.

    VmmError or OSError if the host cannot look just now: that says nothing about the pair.
    """
    return await in_pool(check, files, identity)


async def resume(
    vmm: Vmm,
    config: VmConfig,
    files: SnapshotFiles,
    identity: Identity,
    *,
    loaded: Callable[[Vm], Awaitable[None]] | None = None,
) -> Vm:
    """Load a pair and spend it; vCPUs are still stopped, and `vm.resume()` is the next step.

    `loaded` is awaited before the pair is spent: where the caller notes the process. SnapshotRefused if the pair is not
    to be loaded; VmmError or OSError if the host could not start a VMM just now: then the pair is as good as before.
    """
    await verify(files, identity)
    try:
        vm = await vmm.load(config, files.state)
    except StateRefused as e:
        raise SnapshotRefused("snapshot:load_failed", f"the VMM refused the device state: {e}") from e
    try:
        if loaded is not None:
            await loaded(vm)
        await spend(files)
    except BaseException:
        await vm.kill()
        raise
    return vm


async def spend(files: SnapshotFiles) -> None:
    """Make the pair unusable, durably; due before vCPUs run. Idempotent, and nearly free where there is none."""
    await in_pool(_spend, files)


def has_pair(files: SnapshotFiles) -> bool:
    """Whether there is a pair that was not spent; whether it is good, `verify` says."""
    return files.state.exists() and files.manifest.exists()


async def record_memory_hash(files: SnapshotFiles) -> None:
    """Make memory and disk durable and note the memory's hash in the manifest, so that the pair outlives a host reboot.

    What holds nothing becomes a hole on the way. For the background: one at a time, at the lowest priority. Once
    cancelled it changes nothing more, and does not keep its canceller waiting for a disk.
    """
    job = _HashJob(files)
    future = _hasher.submit(job.run)
    try:
        await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        await job.stop()
        raise


class _HashJob:
    """One memory hash; after `stop` returned, it will not touch the manifest."""

    def __init__(self, files: SnapshotFiles) -> None:
        self._files = files
        self._noting = threading.Lock()
        self._stopped = False

    async def stop(self) -> None:
        """What is being noted at this instant is waited for, off the loop: it may be as slow as its disk."""
        self._stopped = True  # from here on nothing more is begun
        if self._noting.acquire(blocking=False):
            self._noting.release()
            return
        await asyncio.get_running_loop().run_in_executor(_pool, self._wait_for_noting)

    def _wait_for_noting(self) -> None:
        with self._noting:
            return

    def stopped(self) -> bool:
        return self._stopped

    def run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), HASHER_NICENESS)
        with suppress(Stopped, FileNotFoundError, SnapshotRefused):
            self._hash()

    def _hash(self) -> None:
        files = self._files
        manifest = read_manifest(files)
        if manifest is None or manifest.memory_sha256 or not has_pair(files) or self.stopped():
            return
        sync(files.disk)
        sync(files.memory)
        memory = memory_sha256(files.memory, self.stopped)
        with self._noting:
            if self.stopped() or not has_pair(files) or stamp(files.memory) != manifest.memory:
                return
            write_manifest(files, replace(manifest, memory_sha256=memory.sha256))
            sync(files.folder)
        self._give_back(memory.zeros)

    def _give_back(self, zeros: tuple[tuple[int, int], ...]) -> None:
        """Free what was reserved for memory the guest never wrote, or has cleared since."""
        fd = os.open(self._files.memory, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for start, end in zeros:
                for at in range(start, end, PUNCH_BYTES):
                    # Piece by piece, so that `stop` never waits long and nothing is freed after it.
                    with self._noting:
                        if self.stopped():
                            return
                        punch(fd, at, min(at + PUNCH_BYTES, end))
        finally:
            os.close(fd)


def check(files: SnapshotFiles, identity: Identity) -> Manifest:
    """`verify`, blocking."""
    manifest = read_manifest(files)
    if manifest is None:
        raise SnapshotRefused("snapshot:no_manifest", "there is no manifest")
    _check_identity(manifest, identity)
    _check_state(files, manifest)
    _check_disk(files, manifest)
    _check_memory(files, manifest)
    return manifest


def _check_identity(manifest: Manifest, identity: Identity) -> None:
    for reason, found, wanted in (
        ("format", manifest.format, MANIFEST_FORMAT),
        ("machine", manifest.machine_id, identity.machine_id),
        ("vmm", manifest.vmm_version, identity.vmm_version),
        ("arguments", manifest.arguments_sha256, identity.arguments_sha256),
        ("base", manifest.base, identity.base),
        ("image", manifest.image, identity.image),
    ):
        if found != wanted:
            raise SnapshotRefused(f"snapshot:{reason}", f"taken with {reason} {found!r}, now it is {wanted!r}")


def _check_state(files: SnapshotFiles, manifest: Manifest) -> None:
    try:
        digest, size = state_sha256(files.state)
    except OSError as e:
        raise_if_passing(e)
        raise SnapshotRefused("snapshot:state_missing", f"the device state cannot be read: {e.strerror}") from None
    if (digest, size) != (manifest.state_sha256, manifest.state_bytes):
        raise SnapshotRefused("snapshot:state_hash", "the device state is not what was written")


def _check_disk(files: SnapshotFiles, manifest: Manifest) -> None:
    try:
        found = stamp(files.disk)
    except OSError as e:
        raise_if_passing(e)
        raise SnapshotRefused("snapshot:disk_missing", "the disk is missing") from None
    if found != manifest.disk:
        raise SnapshotRefused("snapshot:disk_changed", "the disk is not of the same instant as the memory")


def _check_memory(files: SnapshotFiles, manifest: Manifest) -> None:
    try:
        found = stamp(files.memory)
        fd = os.open(files.memory, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        raise_if_passing(e)
        raise SnapshotRefused("snapshot:memory_missing", "the memory file is missing") from None
    try:
        _wait_until_free(fd)
    finally:
        os.close(fd)
    same_boot = manifest.host_boot_id == current_boot_id()
    if same_boot and found == manifest.memory:
        return
    # On another boot only the content can say whether all of it reached the disk. On this one, an agent that died
    # while it freed a block of zeros may have left another time stamp on the same content.
    if not manifest.memory_sha256:
        if same_boot:
            raise SnapshotRefused("snapshot:memory_changed", "the memory file is not as it was left")
        raise SnapshotRefused("snapshot:memory_unhashed", "the host was restarted before the memory was made durable")
    if found.size_bytes != manifest.memory.size_bytes or memory_sha256(files.memory).sha256 != manifest.memory_sha256:
        raise SnapshotRefused("snapshot:memory_hash", "the memory file does not hold what was left in it")


def _wait_until_free(memory: int) -> None:
    """A killed VMM's lock is free a moment after its end. One that stays is no fault of the pair's."""
    deadline = time.monotonic() + IN_USE_WAIT_S
    while True:
        try:
            fcntl.flock(memory, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise VmmError("another VMM still has this memory") from None
            time.sleep(IN_USE_POLL_S)
        else:
            return


def describe(place: SnapshotFiles, identity: Identity, *, now_ms: int, generation: int) -> Manifest:
    """Write the manifest of files that are complete, the state still beside its place (blocking)."""
    digest, size = state_sha256(place.state_being_written)
    manifest = Manifest(
        format=MANIFEST_FORMAT,
        machine_id=identity.machine_id,
        generation=generation,
        taken_at_ms=now_ms,
        host_boot_id=current_boot_id(),
        vmm_version=identity.vmm_version,
        arguments_sha256=identity.arguments_sha256,
        base=identity.base,
        image=identity.image,
        state_sha256=digest,
        state_bytes=size,
        memory=stamp(place.memory),
        memory_sha256="",
        disk=stamp(place.disk),
    )
    write_manifest(place, manifest)
    return manifest


async def next_generation(files: SnapshotFiles) -> int:
    """One more than any snapshot of this machine has."""
    return 1 + max([0, *(manifest.generation for manifest in await in_pool(_manifests, files))])


def _manifests(files: SnapshotFiles) -> list[Manifest]:
    found: list[Manifest] = []
    for one in (files, files.checkpoint):
        with suppress(SnapshotRefused):
            if manifest := read_manifest(one):
                found.append(manifest)
    return found


def commit(files: SnapshotFiles) -> None:
    """The instant a snapshot comes to be: its state takes its place, durably (blocking)."""
    files.state_being_written.rename(files.state)
    sync(files.folder)


def _spend(files: SnapshotFiles) -> None:
    found = [path for path in (files.state, files.state_being_written) if path.exists()]
    for path in found:
        path.unlink(missing_ok=True)
    if found:
        sync(files.folder)


async def _discard(files: SnapshotFiles) -> None:
    """What a snapshot that failed left; the disk may be full or broken, so this must not raise over the cause."""
    with suppress(OSError):
        await spend(files)


async def in_pool(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Blocking work on the threads of this package."""
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: work(*args, **kwargs))
