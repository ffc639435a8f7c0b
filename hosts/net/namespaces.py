"""Named network namespaces, entered one piece of work at a time.

A process cannot be in two namespaces, but a thread can: work runs on threads of its own pool that enter the wanted
namespace first, every time, so a thread that could not find its way back does no harm. A socket or tap made inside
stays inside, whoever holds it later.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FOLDER = Path("/run/netns")  # where ip(8) keeps them, so `ip netns` shows ours
ENTRY_THREADS = 4  # that enter namespaces

_CLONE_NEWNET = 0x40000000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SHARED = 1 << 20
_MNT_DETACH = 2
_TUNSETIFF = 0x400454CA
_TUNSETPERSIST = 0x400454CB
_TUNSETOWNER = 0x400454CC
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_IFF_VNET_HDR = 0x4000  # QEMU takes the header with checksum and segment offload only from a tap that was made with it

_libc = ctypes.CDLL(None, use_errno=True)
_pool = ThreadPoolExecutor(max_workers=ENTRY_THREADS, thread_name_prefix="netns")


def create(name: str) -> None:
    """Make a namespace and pin it by name; one that exists is left alone."""
    path = FOLDER / name
    FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    if exists(name):
        return
    _keep_folder_deletable()
    path.touch(mode=0o444)
    failures: list[OSError] = []

    def pin() -> None:
        try:
            _check(_libc.unshare(_CLONE_NEWNET), "unshare")
            _check(_libc.mount(b"/proc/thread-self/ns/net", os.fsencode(path), b"none", _MS_BIND, None), "mount")
        except OSError as e:
            failures.append(e)

    # A thread of its own: it ends here, so it never needs to come back.
    thread = threading.Thread(target=pin, name=f"make-{name}")
    thread.start()
    thread.join()
    if failures:
        path.unlink(missing_ok=True)
        raise failures[0]


def delete(name: str) -> None:
    """Unpin a namespace. What holds sockets in it may keep it a little longer; its links die with it."""
    path = FOLDER / name
    while exists(name):  # several mounts may be stacked where two creators raced
        _check(_libc.umount2(os.fsencode(path), _MNT_DETACH), "umount")
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        # Somebody laid a mount over the folder after all, and the namespace is pinned below it too, out of reach. An
        # empty namespace stays until the host restarts; its name is free to be used again.
        if e.errno != errno.EBUSY:
            raise


def exists(name: str) -> bool:
    """Whether the name is pinned to a namespace (a plain file of that name is a leftover, not a namespace)."""
    path = FOLDER / name
    try:
        return path.stat().st_dev != FOLDER.stat().st_dev
    except FileNotFoundError:
        return False


def names(prefix: str) -> list[str]:
    """All names, leftovers included, that begin so."""
    if not FOLDER.is_dir():
        return []
    return sorted(path.name for path in FOLDER.iterdir() if path.name.startswith(prefix))


def open_namespace(name: str) -> int:
    """A file descriptor of the namespace; FileNotFoundError if there is none."""
    if not exists(name):
        raise FileNotFoundError(f"no network namespace {name}")
    return os.open(FOLDER / name, os.O_RDONLY | os.O_CLOEXEC)


def inside(namespace: int, work: Callable[[], T]) -> T:
    """Do blocking `work` in the namespace behind the descriptor."""
    return _pool.submit(_enter_and_do, namespace, work).result()


async def inside_async(namespace: int, work: Callable[[], T]) -> T:
    """As `inside`, without blocking the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_pool, _enter_and_do, namespace, work)


def open_tap(name: str, tap: str) -> int:
    """A descriptor of the persistent tap in the named namespace; OSError EBUSY while another VMM holds it."""
    namespace = open_namespace(name)
    try:
        return inside(namespace, lambda: attach_tap(tap))
    finally:
        os.close(namespace)


def attach_tap(tap: str) -> int:
    """Attach to a tap of the present namespace, making it where there is none."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", tap.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    except OSError:
        os.close(fd)
        raise
    return fd


def make_persistent_tap(tap: str, uid: int) -> None:
    """Make a tap in the present namespace that stays when nobody holds it, so that sockets outlive a VMM."""
    fd = attach_tap(tap)
    try:
        fcntl.ioctl(fd, _TUNSETOWNER, uid)
        fcntl.ioctl(fd, _TUNSETPERSIST, 1)
    finally:
        os.close(fd)


def _keep_folder_deletable() -> None:
    """Make the folder a shared mount point, as the first `ip netns add` on a host does by laying a copy of it over
    itself: by then no namespace of ours may be in it, or it would be pinned in both and could not be deleted.
    """
    folder = os.fsencode(FOLDER)
    is_one = _libc.mount(b"none", folder, b"none", _MS_SHARED | _MS_REC, None) == 0
    if not is_one and not any(exists(path.name) for path in FOLDER.iterdir()):
        _check(_libc.mount(folder, folder, b"none", _MS_BIND | _MS_REC, None), "mount")
        _check(_libc.mount(b"none", folder, b"none", _MS_SHARED | _MS_REC, None), "mount")


def _enter_and_do(namespace: int, work: Callable[[], T]) -> T:
    _check(_libc.setns(namespace, _CLONE_NEWNET), "setns")
    try:
        return work()
    finally:
        # Only so that an idle thread does not keep a removed namespace alive.
        home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)


def _check(result: int, call: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
