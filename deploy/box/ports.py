"""Which TCP ports of loopback the box listens on: preferred or next free ones at first, then always the same.

A port that was configured or recorded and is now somebody else's is a Problem: moving silently would break every
preview URL and git remote that people already have.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from deploy.box.say import Problem

LOOPBACK = "127.0.0.1"
LOOK_AHEAD = 200  # ports tried upwards from the preferred one
VARIABLES = {"web": "BURROW_WEB_PORT", "edge": "BURROW_EDGE_PORT", "link": "BURROW_LINK_PORT"}


@dataclass(frozen=True, slots=True)
class Ports:
    """One port for each listener."""

    web: int = 8000  # dashboard, API, git
    edge: int = 8080  # preview URLs
    link: int = 8090  # where the host agent dials the edge


def is_free(port: int) -> bool:
    """Nobody listens there."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection in TIME_WAIT is nobody
        try:
            s.bind((LOOPBACK, port))
            s.listen(1)
        except OSError as e:
            if e.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def configured_ports(env: Mapping[str, str] = os.environ) -> dict[str, int]:
    """The ports the operator asked for."""
    found = {}
    for name, variable in VARIABLES.items():
        if text := env.get(variable):
            if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
                raise Problem(f"{variable} must be a port number from 1 to 65535, not {text!r}")
            found[name] = int(text)
    return found


def choose(
    *,
    configured: Mapping[str, int],
    recorded: Ports | None,
    ours: frozenset[str] = frozenset(),
    free: Callable[[int], bool] = is_free,
) -> Ports:
    """The port of each listener. `ours` names listeners that run already: their ports are taken by ourselves."""
    fixed = {**(asdict(recorded) if recorded else {}), **configured}
    chosen: dict[str, int] = {}
    for name, preferred in asdict(Ports()).items():
        if name in fixed:
            port = fixed[name]
            kept_running = name in ours and recorded is not None and asdict(recorded)[name] == port
            if not kept_running and not free(port):
                raise Problem(
                    f"port {port} of {LOOPBACK} ({name}) is taken by another program; "
                    f"end it (see `ss -ltnp`), or choose another port with {VARIABLES[name]}=N deploy/up"
                )
        else:
            taken = {*chosen.values(), *fixed.values()}
            port = next((p for p in range(preferred, preferred + LOOK_AHEAD) if p not in taken and free(p)), 0)
            if not port:
                raise Problem(f"no free port between {preferred} and {preferred + LOOK_AHEAD} for {name}")
        if port in chosen.values():
            raise Problem(f"port {port} is asked for twice")
        chosen[name] = port
    return Ports(**chosen)
