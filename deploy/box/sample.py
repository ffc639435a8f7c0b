"""The first person and the sample app: an account, a token, and a real `git push` of deploy/sample.

On later runs the account and its token stay, and the sample is pushed again only if its files changed or it was
deleted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.box import keys, settings
from deploy.box.instance import Instance
from deploy.box.ports import Ports
from deploy.box.programs import as_user
from deploy.box.say import Problem, Say

EMAIL = "admin@burrow.localhost"
APP = "hello"
MANAGE_TIMEOUT_S = 120
API_TIMEOUT_S = 60
GIT_TIMEOUT_S = 60
PUSH_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Access:
    """How scripts and people reach the box: what var/burrow.json holds."""

    dashboard: str
    api: str
    token: str
    email: str
    password: str
    git_url: str  # with {app} where the app's name goes
    preview_domain: str
    preview_port: int


def manage(
    instance: Instance, ports: Ports, say: Say, *arguments: str, stdin: str = "", secret: bool = False, failure: str
) -> str:
    """Run a manage.py command as the services' user, with the services' settings."""
    argv = (str(instance.place / ".venv/bin/python"), str(instance.place / "manage.py"), *arguments)
    return say.run(
        as_user(instance, argv), failure=failure, timeout_s=MANAGE_TIMEOUT_S, stdin=stdin, secret=secret,
        env=settings.control(instance, ports),
    )  # fmt: skip


def ensure_access(instance: Instance, ports: Ports, say: Say) -> Access:
    """The account and a token that works; both recorded for scripts, readable by root only."""
    path = instance.var / "burrow.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    email, password = known.get("email", EMAIL), known.get("password") or keys.new_password()
    wanted = {"email": email, "password": password, "token": known.get("token")}
    text = manage(
        instance, ports, say, "bootstrap", stdin=json.dumps(wanted) + "\n", secret=True,
        failure="cannot make the first account",
    )  # fmt: skip
    token = json.loads(text.splitlines()[-1])["token"]
    web = settings.public_url(ports)
    access = Access(
        dashboard=f"{web}/", api=f"{web}/api/v1", token=token, email=email, password=password,
        git_url=f"{web}/{{app}}.git", preview_domain=settings.PREVIEW_DOMAIN, preview_port=ports.edge,
    )  # fmt: skip
    record = {name: getattr(access, name) for name in Access.__dataclass_fields__}
    keys.write_private(path, json.dumps(record, indent=2) + "\n")
    return access


def ensure_sample(instance: Instance, access: Access, say: Say) -> str:
    """The sample app's URL; pushed if it is not live as it is in this checkout."""
    source = instance.root / "deploy/sample"
    stamp = instance.var / "sample.sha256"
    digest = digest_of(source)
    app = _call(access, "GET", f"/apps/{APP}")
    if app and app.get("release") and stamp.exists() and stamp.read_text(encoding="ascii").strip() == digest:
        return str(app["url"])
    if not app:
        app = _call(access, "POST", "/apps", {"name": APP})
        if not app:
            raise Problem("the API would not create the sample app")
    with say.step(f"deploying the sample app with a git push to {app['git_url']}"):
        _push(source, str(app["git_url"]), access.token, say)
    stamp.write_text(digest + "\n", encoding="ascii")
    return str(app["url"])


def digest_of(folder: Path) -> str:
    """One digest over names and contents."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _push(source: Path, url: str, token: str, say: Say) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="burrow-sample-"))
    login = base64.b64encode(f"token:{token}".encode()).decode()
    # The token goes by the environment: an argument would be seen by everybody who lists processes.
    env = {
        "PATH": settings.PATH, "HOME": str(scratch), "LANG": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader", "GIT_CONFIG_VALUE_0": f"Authorization: Basic {login}",
    }  # fmt: skip
    try:
        work = scratch / "work"
        shutil.copytree(source, work, ignore=shutil.ignore_patterns("__pycache__"))
        author = ["-c", "user.name=Burrow", "-c", "user.email=burrow@localhost"]
        for argv in (["init", "-q", "-b", "main"], ["add", "."], [*author, "commit", "-q", "-m", "The sample app"]):
            say.run(["git", *argv], failure="git failed", timeout_s=GIT_TIMEOUT_S, cwd=work, env=env)
        # --force: the sample's history starts anew with each push.
        say.run(
            ["git", "push", "--force", url, "main"], failure="the sample app did not deploy",
            timeout_s=PUSH_TIMEOUT_S, cwd=work, env=env, show=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _call(access: Access, method: str, path: str, body: object = None) -> dict[str, Any] | None:
    request = urllib.request.Request(  # noqa: S310 - our own address on loopback
        access.api + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"},
    )
    # No proxy: the operator's is for the world outside.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=API_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except urllib.error.HTTPError as e:
        if e.code == 404:
            return None
        raise Problem(f"{method} {path} answered {e.code}: {e.read(300).decode(errors='replace')}") from e
    except OSError as e:
        raise Problem(f"{method} {path}: {e}") from e


def reached_from_elsewhere(ports: Ports) -> str:
    """How to open the dashboard when the box is a server somewhere."""
    user = os.environ.get("SUDO_USER", "root")
    return f"ssh -L {ports.web}:127.0.0.1:{ports.web} -L {ports.edge}:127.0.0.1:{ports.edge} {user}@this-server"
