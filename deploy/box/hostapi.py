"""Asks the host agent: through the edge, as control does, or at its own socket, which only root may open.

The way through the edge (tunnel/wire/SPEC.md, hosts/wire/SPEC.md) shows that the whole path works. The agent's own
socket answers when the edge is down already, which is when the machines are put to sleep.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.box.instance import Instance
from deploy.box.settings import HOST_ID

LINE_LIMIT = 16 * 1024
CONNECT_TIMEOUT_S = 5


class HostSilent(Exception):  # noqa: N818 - reads as the fact it states
    """The host agent cannot be reached, or refused; the text says which part."""


def request(instance: Instance, method: str, path: str, body: object = None, *, timeout_s: float) -> Any:
    """One request to the host agent, through the edge; its JSON answer."""
    return _ask(lambda: _through_edge(instance, timeout_s), method, path, body)


def request_directly(instance: Instance, method: str, path: str, body: object = None, *, timeout_s: float) -> Any:
    """One request to the host agent at its own socket; its JSON answer."""
    return _ask(lambda: _connected(instance.run / "host/agent.sock", timeout_s), method, path, body)


def _ask(connect: Callable[[], socket.socket], method: str, path: str, body: object) -> Any:
    try:
        with connect() as stream:
            return _http(stream, method, path, body)
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise HostSilent(f"{method} {path}: {type(e).__name__}: {e}") from e


def _connected(path: Path, timeout_s: float) -> socket.socket:
    folder = os.open(path.parent, os.O_PATH)
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.settimeout(CONNECT_TIMEOUT_S)
        # A path through /proc stays short however long the checkout's is (sun_path ends at 107 bytes).
        stream.connect(f"/proc/self/fd/{folder}/{path.name}")
    except BaseException:
        stream.close()
        raise
    finally:
        os.close(folder)
    stream.settimeout(timeout_s)
    return stream


def _through_edge(instance: Instance, timeout_s: float) -> socket.socket:
    stream = _connected(instance.var / "edge-run/edge.sock", timeout_s)
    try:
        _open_to_host(stream)
    except BaseException:
        stream.close()
        raise
    return stream


def _open_to_host(stream: socket.socket) -> None:
    stream.sendall(json.dumps({"v": 1, "hello": "open", "to": {"host": HOST_ID}}).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        byte = stream.recv(1)  # byte by byte: what follows the line belongs to HTTP
        if not byte or len(line) > LINE_LIMIT:
            raise HostSilent("the edge closed the stream")
        line += byte
    opened = json.loads(line)
    if not opened.get("ok"):
        raise HostSilent(f"{opened.get('code')}: {opened.get('message')}")


class _Connection(http.client.HTTPConnection):
    """HTTP over a stream that is open already."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__("host")
        self.sock = stream


def _http(stream: socket.socket, method: str, path: str, body: object) -> Any:
    connection = _Connection(stream)
    payload = None if body is None else json.dumps(body).encode()
    connection.request(method, path, body=payload, headers={"Connection": "close", "Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    if answer.status >= 300:
        raise HostSilent(f"{method} {path}: {answer.status} {text[:200]}")
    return json.loads(text) if text else None
