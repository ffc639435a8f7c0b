"""A Redis of our own: a Unix socket only, nothing evicted (it holds Celery's queue), every write kept in a file."""

from __future__ import annotations

from pathlib import Path


def serve(*, data: Path, socket: Path, durable: bool = True) -> list[str]:
    """Run the server in the foreground. Tests do without durability."""
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes" if durable else "no",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
    }
    return ["redis-server", *(part for name, value in settings.items() for part in (f"--{name}", value))]
