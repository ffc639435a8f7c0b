"""A real Postgres and a real Redis for the tests, started when first needed and ended with the test run.

The kernel ends them if the test run dies without a word (parent death signal), so nothing is left behind.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.box import postgres, redis
from tests.environment import VAR

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 15
POLL_S = 0.02
SOCKETS = VAR / "sockets"


def unprivileged() -> str:
    """Who runs the servers: Postgres refuses root, so root lends it the user that Debian's package made."""
    return "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def as_server_user(argv: Sequence[str], *, death_signal: str = "INT") -> list[str]:
    """The command, run by the unprivileged user and ended by the kernel when this process ends."""
    user = unprivileged()
    switch = ["--reuid", user, "--regid", user, "--init-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *switch, "--pdeathsig", death_signal, "--", *argv]


@contextmanager
def running(argv: Sequence[str], *, log: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """The server, from the moment it answers until it has ended."""
    with (
        log.open("wb") as out,
        subprocess.Popen(as_server_user(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=VAR) as process,
    ):
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{argv[0]} did not start:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(POLL_S)
            yield
        finally:
            process.send_signal(2)  # SIGINT: Postgres ends fast instead of waiting for its clients
            try:
                process.wait(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def postgres_server() -> Iterator[Path]:
    """A new cluster; its socket folder, which BURROW_DB_HOST names already."""
    cluster = postgres.Cluster(data=VAR / "postgres", sockets=SOCKETS, user="burrow")
    bin_dir = postgres.programs()
    cluster.data.mkdir(mode=postgres.FOLDER_MODE)
    if os.geteuid() == 0:
        shutil.chown(cluster.data, unprivileged())
        shutil.chown(SOCKETS, unprivileged())
    # The tests connect as another user than the role: trust, behind a socket that only its owner and root may open.
    initdb = [a.replace("--auth-local=peer", "--auth-local=trust") for a in cluster.initdb(bin_dir)]
    subprocess.run(
        as_server_user([*initdb, "--no-sync"]), check=True, capture_output=True, timeout=START_TIMEOUT_S, cwd=VAR
    )
    probe = [str(bin_dir / "pg_isready"), "-q", "-h", str(SOCKETS), "-d", "postgres"]

    def ready() -> bool:
        return subprocess.run(probe, check=False, timeout=START_TIMEOUT_S).returncode == 0

    with running(cluster.serve(bin_dir, durable=False), log=VAR / "postgres.log", ready=ready):
        yield SOCKETS


@contextmanager
def redis_server() -> Iterator[Path]:
    """A new, empty Redis; its socket, which BURROW_REDIS_SOCKET names already."""
    data = VAR / "redis"
    data.mkdir()
    if os.geteuid() == 0:
        shutil.chown(data, unprivileged())
        shutil.chown(SOCKETS, unprivileged())
    socket = SOCKETS / "redis.sock"
    with running(redis.serve(data=data, socket=socket, durable=False), log=VAR / "redis.log", ready=socket.is_socket):
        yield socket
