"""A Postgres cluster of our own: a Unix socket, no TCP, and peer authentication for the user it runs as.

Debian's packages bring the programs; the cluster they would make by themselves is not used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from deploy.box.say import Problem

DEBIAN_HOME = Path("/usr/lib/postgresql")
DATABASE = "burrow"
MAX_CONNECTIONS = 200  # every thread of web and worker holds one
FOLDER_MODE = 0o700


def programs(version: str | None = None, home: Path = DEBIAN_HOME) -> Path:
    """The folder with `postgres` and `initdb`: of that major version, or of the newest one installed."""
    installed = sorted((int(p.name), p / "bin") for p in home.glob("*") if re.fullmatch(r"[0-9]+", p.name))
    for number, path in reversed(installed):
        if (version is None or str(number) == version) and (path / "postgres").exists():
            return path
    if version is None:
        raise Problem("Postgres is not installed")
    raise Problem(f"this box's data was made by Postgres {version}, which is not installed now")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster keeps its data and its socket, as the process that runs it sees them."""

    data: Path
    sockets: Path
    user: str

    def initdb(self, bin_dir: Path) -> list[str]:
        """Make the cluster, as its user."""
        return [
            str(bin_dir / "initdb"), "-D", str(self.data), "-U", self.user, "-E", "UTF8", "--locale=C.UTF-8",
            "--auth-local=peer", "--auth-host=reject", "--data-checksums",
        ]  # fmt: skip

    def serve(self, bin_dir: Path, *, durable: bool = True) -> list[str]:
        """Run the server in the foreground. Tests do without durability."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "max_connections": str(MAX_CONNECTIONS),
            "shared_buffers": "64MB",
            "jit": "off",  # our queries are short; compiling them takes longer than running them
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_min_duration_statement": "1000",
            "idle_in_transaction_session_timeout": "60s",
        }
        if not durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(bin_dir / "postgres"), "-D", str(self.data), *options]
