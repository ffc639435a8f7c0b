"""A copy of a machine's memory, state and disk of one instant, kept beside the machine, which goes on.

The guest stops only while its files are cloned; making the copy durable happens while it runs again. A checkpoint
replaces the one before it in a single rename, and restoring copies it back, so it can be restored any number of
times.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from hosts.disk.clone import clone
from hosts.snapshots.files import (
    Identity,
    SnapshotFailed,
    SnapshotFiles,
    stamp,
    sync,
    write_manifest,
)
from hosts.snapshots.pair import check, commit, describe, has_pair, in_pool, next_generation, spend
from hosts.vmm.process import current_boot_id
from hosts.vmm.protocol import Vm, VmmError
from hosts.wire.manifest import Manifest

CHECKPOINT_BEING_MADE = ".checkpoint.new"
RESTORE_BEING_MADE = ".restore.new"

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


async def checkpoint(
    vm: Vm,
    files: SnapshotFiles,
    identity: Identity,
    *,
    now_ms: int,
    cloned: Callable[[], Awaitable[None]] | None = None,
) -> Manifest:
    """Copy this instant. A VM that ran runs again as soon as its files are cloned; one that was paused stays so.

    `cloned` is awaited at that moment too. SnapshotFailed leaves an older checkpoint, and the VM, as they were.
    """
    new = SnapshotFiles(files.folder / CHECKPOINT_BEING_MADE)
    try:
        generation = await next_generation(files)
        await in_pool(_fresh_folder, new.folder)
        ran = await vm.is_running()
        await vm.pause()
        try:
            # The state first: a full disk is found out before anything big is copied.
            await vm.save(new.state_being_written)
            await in_pool(_clone_files, files, new)
        finally:
            if ran:
                await vm.resume()
        if cloned is not None:
            await cloned()
        manifest = await in_pool(_finish, new, identity, now_ms, generation)
        await in_pool(_put_in_place, new.folder, files.checkpoint.folder)
    except (VmmError, OSError) as e:
        await in_pool(_remove, new.folder)
        raise SnapshotFailed(f"no checkpoint could be made: {e}") from e
    except BaseException:
        await in_pool(_remove, new.folder)
        raise
    return manifest


async def restore(files: SnapshotFiles, identity: Identity, *, uid: int) -> Manifest:
    """Make the checkpoint the machine's pair and disk; the checkpoint stays. No VM may run on the machine's memory.

    SnapshotRefused if the checkpoint is not good; OSError (no space, say) before anything of the machine was changed.
    """
    manifest = await in_pool(check, files.checkpoint, identity)
    generation = await next_generation(files)
    copies = SnapshotFiles(files.folder / RESTORE_BEING_MADE)
    try:
        await in_pool(_fresh_folder, copies.folder)
        await in_pool(_clone_all, files.checkpoint, copies, uid)
        # From here to the commit the machine has a disk but no memory: a crash in between means a cold boot.
        await spend(files)
        return await in_pool(_move_in, copies, files, manifest, generation)
    finally:
        await in_pool(_remove, copies.folder)


def has_checkpoint(files: SnapshotFiles) -> bool:
    """Whether there is one; whether it is good, `restore` says."""
    return has_pair(files.checkpoint)


def drop_checkpoint(files: SnapshotFiles) -> None:
    """Remove it; idempotent (blocking)."""
    _remove(files.checkpoint.folder)


def reclaim(files: SnapshotFiles) -> None:
    """Remove what an agent that died left half made (blocking); only while nothing is being made."""
    for name in (CHECKPOINT_BEING_MADE, RESTORE_BEING_MADE):
        _remove(files.folder / name)
    files.state_being_written.unlink(missing_ok=True)


def _fresh_folder(folder: Path) -> None:
    _remove(folder)
    folder.mkdir(mode=0o700)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _clone_files(source: SnapshotFiles, target: SnapshotFiles) -> None:
    clone(source.memory, target.memory)
    clone(source.disk, target.disk)


def _finish(new: SnapshotFiles, identity: Identity, now_ms: int, generation: int) -> Manifest:
    """Everything of a new checkpoint on the disk, and described."""
    sync(new.memory)
    sync(new.disk)
    manifest = describe(new, identity, now_ms=now_ms, generation=generation)
    commit(new)
    return manifest


def _put_in_place(new: Path, place: Path) -> None:
    """Put the new folder where the old one is, or was not, in one step; the old one goes."""
    if place.exists():
        if _libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(place), _RENAME_EXCHANGE) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(place))
    else:
        new.rename(place)
    sync(place.parent)
    _remove(new)


def _clone_all(source: SnapshotFiles, target: SnapshotFiles, uid: int) -> None:
    _clone_files(source, target)
    clone(source.state, target.state)
    for path in (target.memory, target.disk):
        os.chown(path, uid, uid, follow_symlinks=False)
    for path in (target.disk, target.state):
        sync(path)


def _move_in(copies: SnapshotFiles, files: SnapshotFiles, manifest: Manifest, generation: int) -> Manifest:
    copies.disk.rename(files.disk)
    copies.memory.rename(files.memory)
    restored = replace(
        manifest,
        generation=generation,
        host_boot_id=current_boot_id(),
        memory=stamp(files.memory),
        disk=stamp(files.disk),
    )
    write_manifest(files, restored)
    copies.state.rename(files.state)
    sync(files.folder)
    return restored
