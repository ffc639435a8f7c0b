"""Who may reach what on a box: the edge parses what strangers send, and its user has nothing of control's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.box.instance import Instance
from tests.e2e.conftest import RealBox

COMMAND_TIMEOUT_S = 20


def as_edge(instance: Instance, *argv: str) -> subprocess.CompletedProcess[str]:
    """The command as the edge's user, in the edge's own view of the file system."""
    enter = instance.root / "deploy/box/enter.sh"
    return subprocess.run(
        ["/bin/sh", str(enter), instance.edge_user, str(instance.root), str(instance.place), *argv],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("path", ["secrets/secret_key", "secrets/host_token", "repos", "spool", "burrow.json", "host"])
def test_the_edge_cannot_read_what_is_controls_or_the_hosts(box: RealBox, path: str) -> None:
    instance = Instance.of(box.folder)
    there = instance.var / path
    assert there.exists()
    refused = as_edge(instance, "ls" if there.is_dir() else "cat", f"var/{path}")
    assert "Permission denied" in refused.stderr


@pytest.mark.parametrize("socket", ["run/.s.PGSQL.5432", "run/redis.sock", "run/web.sock"])
def test_the_edge_cannot_connect_to_database_broker_or_web(box: RealBox, socket: str) -> None:
    instance = Instance.of(box.folder)
    assert (instance.var / socket).is_socket()
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('var/{socket}')"
    assert "PermissionError" in as_edge(instance, "/usr/bin/python3", "-c", connect).stderr


def test_the_edge_runs_as_its_own_user_and_control_still_reaches_it(box: RealBox) -> None:
    instance = Instance.of(box.folder)
    assert Path(f"/proc/{box.pid('edge')}").owner() == instance.edge_user
    assert box.client.call("GET", "/apps/hello")["state"] in ("running", "paused", "suspended")
    assert (instance.var / "edge-run/edge.sock").group() == instance.user
