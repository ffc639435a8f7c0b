"""Which machine answers for which hostname: the table in memory, and the last one on disk.

A table replaces the one before it whole, and only if its generation is greater. The file is what a restarted edge
serves from while control is away, so it is replaced atomically and fsynced.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import structlog

from tunnel.wire import Route, RouteTable, WireError, decode_table

_log = structlog.get_logger(__name__)


class Router:
    """The routes this edge serves."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._table = RouteTable(0, ())
        self._by_hostname: dict[str, Route] = {}
        self._by_machine: dict[str, Route] = {}
        self._publishing = asyncio.Lock()
        self.find = self._by_hostname.get

    @property
    def generation(self) -> int:
        return self._table.generation

    def __len__(self) -> int:
        return len(self._by_hostname)

    def of_machine(self, machine: str) -> Route | None:
        """Any route of this machine."""
        return self._by_machine.get(machine)

    def load(self) -> None:
        """Take up the table an earlier edge left. A file that cannot be read is said, and no table is served."""
        try:
            self._use(decode_table(self._file.read_bytes()))
        except FileNotFoundError:
            return
        except (OSError, WireError) as e:
            _log.error("route table on disk is unreadable; serving none until control publishes", error=str(e))

    async def publish(self, line: bytes) -> int:
        """Use this table if it is newer; answers the generation served from now on. WireError if it is no table."""
        async with self._publishing:
            # In a thread: 100,000 routes take the parser half a second, in which requests must go on.
            table = await asyncio.to_thread(decode_table, line)
            if table.generation > self._table.generation:
                by_hostname, by_machine = await asyncio.to_thread(_index, table)
                try:
                    await asyncio.to_thread(_replace, self._file, table.encode())
                except OSError as e:  # a full disk must not stop a deploy; it costs the table only at the next start
                    _log.error("cannot keep the route table on disk", error=str(e))
                self._use(table, by_hostname, by_machine)
                _log.info("routes", generation=table.generation, routes=len(table.routes))
            return self._table.generation

    def _use(
        self,
        table: RouteTable,
        by_hostname: dict[str, Route] | None = None,
        by_machine: dict[str, Route] | None = None,
    ) -> None:
        if by_hostname is None or by_machine is None:
            by_hostname, by_machine = _index(table)
        self._table, self._by_hostname, self._by_machine = table, by_hostname, by_machine
        self.find = by_hostname.get


def _index(table: RouteTable) -> tuple[dict[str, Route], dict[str, Route]]:
    return {r.hostname: r for r in table.routes}, {r.machine: r for r in table.routes}


def _replace(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
