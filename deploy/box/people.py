"""The box's unprivileged system user, and the folders it may write."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from pathlib import Path

from deploy.box.instance import Instance
from deploy.box.say import Problem, Say

USERADD_TIMEOUT_S = 30
PRIVATE = 0o700
SHARED = 0o755
CODE = ("platform", "hosts", "tunnel", "templates", "deploy")


def exists(name: str) -> bool:
    """There is such a user."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def ensure_user(instance: Instance, say: Say) -> None:
    """Make the user if it is missing."""
    if not exists(instance.user):
        say.run(
            ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
             "--shell", "/usr/sbin/nologin", instance.user],
            failure=f"cannot make the system user {instance.user}", timeout_s=USERADD_TIMEOUT_S,
        )  # fmt: skip


def remove_user(instance: Instance, say: Say) -> None:
    """Remove the user if it is there; its group goes with it."""
    if exists(instance.user):
        say.run(
            ["userdel", instance.user], failure=f"cannot remove the user {instance.user}", timeout_s=USERADD_TIMEOUT_S
        )


def make_folders(instance: Instance) -> None:
    """The folders of var/ and /run, each with the one owner that writes there."""
    var = instance.var
    for path in (instance.run, instance.place, var, var / "images"):
        folder(path, owner="root", mode=SHARED)
    for path in (var / "host", var / "log"):
        folder(path, owner="root", mode=PRIVATE)
    for name in ("postgres", "redis", "run", "repos", "spool", "edge", "secrets", "home"):
        folder(var / name, owner=instance.user, mode=PRIVATE)
    # The host agent's sockets must fit 107 bytes wherever the checkout is; a link is enough, because the agent is root.
    link = instance.run / "host"
    if not (link.is_symlink() and link.readlink() == var / "host"):
        link.unlink(missing_ok=True)
        link.symlink_to(var / "host")


def folder(path: Path, *, owner: str, mode: int) -> None:
    """A folder with that owner and mode, whatever it was before."""
    path.mkdir(exist_ok=True, mode=mode)
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)
    shutil.chown(path, owner, owner)


def check_code_is_readable(root: Path) -> None:
    """The services' user must be able to read the code.

    A clone made under a strict umask is not, and is not opened silently.
    """
    for path in [root, root / "manage.py", root / ".venv", *(p for name in CODE for p in _tree(root / name))]:
        if not path.exists():
            continue
        mode = path.stat().st_mode
        wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
        if mode & wanted != wanted:
            raise Problem(
                f"{path} is readable by root only, and the services run as a user of their own: "
                f"run `chmod -R o+rX {root}`, or clone again with umask 022"
            )


def _tree(top: Path) -> list[Path]:
    found = [top]
    for here, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [Path(here, name) for name in (*folders, *files) if not name.endswith(".pyc")]
    return found
