"""The box's two unprivileged system users, and the folders each may write."""

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
HANDED_ON = 0o2750  # what is made in it belongs to the folder's group
CODE = ("platform", "hosts", "tunnel", "templates", "deploy")


def exists(name: str) -> bool:
    """There is such a user."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def ensure_users(instance: Instance, say: Say) -> None:
    """Make the users that are missing."""
    for user in (instance.user, instance.edge_user):
        if not exists(user):
            say.run(
                ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
                 "--shell", "/usr/sbin/nologin", user],
                failure=f"cannot make the system user {user}", timeout_s=USERADD_TIMEOUT_S,
            )  # fmt: skip


def remove_users(instance: Instance, say: Say) -> None:
    """Remove the users that are there; their groups go with them."""
    for user in (instance.user, instance.edge_user):
        if exists(user):
            say.run(["userdel", user], failure=f"cannot remove the user {user}", timeout_s=USERADD_TIMEOUT_S)


def make_folders(instance: Instance) -> None:
    """The folders of var/ and /run, each with the one owner that writes there."""
    var = instance.var
    for path in (instance.run, instance.place, var, var / "images"):
        folder(path, owner="root", mode=SHARED)
    for path in (var / "host", var / "log"):
        folder(path, owner="root", mode=PRIVATE)
    for name in ("postgres", "redis", "run", "repos", "spool", "secrets", "home"):
        folder(var / name, owner=instance.user, mode=PRIVATE)
    folder(var / "edge", owner=instance.edge_user, mode=PRIVATE)
    # The edge listens here, and control connects: the socket takes the folder's group.
    folder(var / "edge-run", owner=instance.edge_user, group=instance.user, mode=HANDED_ON)
    # The host agent's sockets must fit 107 bytes wherever the checkout is; a link is enough, because the agent is root.
    link = instance.run / "host"
    if not (link.is_symlink() and link.readlink() == var / "host"):
        link.unlink(missing_ok=True)
        link.symlink_to(var / "host")


def folder(path: Path, *, owner: str, mode: int, group: str = "") -> None:
    """A folder with that owner, group (the owner's own unless named) and mode, whatever it was before."""
    path.mkdir(exist_ok=True, mode=mode)
    shutil.chown(path, owner, group or owner)
    if stat.S_IMODE(path.stat().st_mode) != mode:  # after chown, which drops the setgid bit of some
        path.chmod(mode)


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
