"""The bare repositories: one per app, named by the app's UUID and by nothing a user chose; and the environment git
runs in.

git sees no configuration but what is given here: no system or user files, no home. Hooks are static files of this
package.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

from django.conf import settings

from control.applications.models import App

HOOKS = Path(__file__).resolve().parent / "hooks"
PUSH_BYTES_MAX = 256 * 1024 * 1024  # of a pack, as it is sent
GIT_TIMEOUT_S = 30
GIT_PATH = "/usr/local/bin:/usr/bin:/bin"

CONFIG = {
    "core.hooksPath": str(HOOKS),
    "receive.fsckObjects": "true",
    "receive.maxInputSize": str(PUSH_BYTES_MAX),
    "receive.advertisePushOptions": "false",
    "receive.denyDeletes": "true",
    "receive.unpackLimit": "1",  # a push stays one pack: no burst of loose files
    "gc.autoDetach": "false",
    "http.receivepack": "true",
    "http.uploadpack": "true",
    "http.getanyfile": "false",
    "protocol.allow": "never",
    "protocol.file.allow": "never",
    "pack.threads": "1",
    "pack.windowMemory": "64m",
}


def path_of(app: App) -> Path:
    """Where the app's repository is."""
    return Path(settings.REPOS) / f"{app.id.hex}.git"


def git_environment(repository: Path) -> dict[str, str]:
    """Everything a git process of ours may see of the outside."""
    pairs = {**CONFIG, "safe.directory": str(repository)}
    environment = {
        "PATH": GIT_PATH,
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(pairs)),
    }
    for i, (key, value) in enumerate(pairs.items()):
        environment[f"GIT_CONFIG_KEY_{i}"] = key
        environment[f"GIT_CONFIG_VALUE_{i}"] = value
    return environment


def ensure(app: App) -> Path:
    """The app's repository, made if it is not there yet. Two at once make one."""
    path = path_of(app)
    if (path / "HEAD").is_file():
        return path
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.draft")
    subprocess.run(
        ["git", "init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--end-of-options", str(draft)],
        check=True,
        env=git_environment(draft),
        timeout=GIT_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    try:
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft)
        if not (path / "HEAD").is_file():
            raise
    return path


def remove(app: App) -> None:
    """Drop the repository of a deleted app; again is fine."""
    path = path_of(app)
    trash = path.with_name(f"{path.name}.{uuid.uuid4().hex}.gone")
    try:
        path.rename(trash)
    except FileNotFoundError:
        return
    shutil.rmtree(trash)


def clean() -> None:
    """Drop what deletions left: repositories whose message was lost, and those whose removal was cut short."""
    folder = Path(settings.REPOS)
    ids = [path.stem for path in folder.glob("[0-9a-f]" * 32 + ".git")]
    for app in App.objects.filter(id__in=ids).exclude(deleted_at=None):
        remove(app)
    for trash in folder.glob("*.gone"):
        shutil.rmtree(trash, ignore_errors=True)  # whoever is at it already may be quicker
