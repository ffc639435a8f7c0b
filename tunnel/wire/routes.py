"""The route table control publishes to every edge (SPEC.md, section 4).

A table is whole: what is not in it does not exist. Its generation only ever grows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tunnel.wire.hello import raise_refusal
from tunnel.wire.line import (
    PROTOCOL_VERSION,
    WireError,
    check_version,
    child,
    dump_line,
    load_line,
    load_object,
    number,
    text,
    truth_or_false,
)

MAX_GENERATION = 2**63 - 1  # of a route table
MAX_TABLE_BYTES = 64 * 1024 * 1024  # of a route table; 100,000 routes are about 15 MB

HOSTNAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")
MAX_PATTERNS = 64  # methods, and paths, of one route that do not wake
PATTERN = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class NoWake:
    """Which requests do not wake a sleeping machine, though the route may."""

    robots: bool = False  # monitors and crawlers, as the edge knows them by their User-Agent
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()  # whole paths without a query; with a final `*` the beginning of one


WAKE_ALWAYS = NoWake()


@dataclass(frozen=True, slots=True)
class Route:
    """A hostname and the machine that answers for it."""

    hostname: str  # lower case, no port, no trailing dot
    machine: str
    host: str
    app: str
    may_wake: bool = True
    no_wake: NoWake = WAKE_ALWAYS
    waiting_page: bool = False  # browsers get a page while the machine wakes; everybody else is held


@dataclass(frozen=True, slots=True)
class RouteTable:
    """All routes as of one generation."""

    generation: int
    routes: tuple[Route, ...]

    def encode(self) -> bytes:
        """One line; it may be longer than other lines (MAX_TABLE_BYTES)."""
        value = {"generation": self.generation, "routes": [_row(r) for r in self.routes]}
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _row(r: Route) -> dict[str, object]:
    row: dict[str, object] = {
        "hostname": r.hostname,
        "machine": r.machine,
        "host": r.host,
        "app": r.app,
        "may_wake": r.may_wake,
    }
    if r.no_wake != WAKE_ALWAYS:
        row["no_wake"] = {"robots": r.no_wake.robots, "methods": r.no_wake.methods, "paths": r.no_wake.paths}
    if r.waiting_page:
        row["waiting_page"] = True
    return row


def decode_table(line: bytes) -> RouteTable:
    """A whole table or WireError: one bad route refuses it all, for half a table would take down the other half."""
    if len(line) > MAX_TABLE_BYTES:
        raise WireError(f"table of more than {MAX_TABLE_BYTES} bytes")
    message = load_object(line)
    rows = message.get("routes")
    if not isinstance(rows, list):
        raise WireError("routes: wanted a list")
    routes = tuple(_route(row, i) for i, row in enumerate(rows))
    if len({r.hostname for r in routes}) != len(routes):
        raise WireError("routes: a hostname is there twice")
    return RouteTable(number(message, "generation", at_most=MAX_GENERATION), routes)


def _route(row: object, i: int) -> Route:
    if not isinstance(row, Mapping):
        raise WireError(f"routes[{i}]: wanted an object")
    try:
        hostname = text(row, "hostname")
        if not HOSTNAME.fullmatch(hostname):
            raise WireError("hostname: wanted a lower-case DNS name")
        may_wake = row.get("may_wake", True)
        if type(may_wake) is not bool:
            raise WireError("may_wake: wanted true or false")
        return Route(
            hostname,
            text(row, "machine"),
            text(row, "host"),
            text(row, "app"),
            may_wake,
            _no_wake(row),
            waiting_page=truth_or_false(row, "waiting_page"),
        )
    except WireError as e:
        raise WireError(f"routes[{i}].{e}") from None


def _no_wake(row: Mapping[str, object]) -> NoWake:
    if "no_wake" not in row:  # an older control's table, or an older edge's file
        return WAKE_ALWAYS
    value = child(row, "no_wake")
    try:
        return NoWake(truth_or_false(value, "robots"), _patterns(value, "methods"), _patterns(value, "paths"))
    except WireError as e:
        raise WireError(f"no_wake.{e}") from None


def _patterns(value: Mapping[str, object], name: str) -> tuple[str, ...]:
    found = value.get(name, [])
    if not isinstance(found, list) or len(found) > MAX_PATTERNS:
        raise WireError(f"{name}: wanted a list of at most {MAX_PATTERNS}")
    if not all(type(x) is str and PATTERN.fullmatch(x) for x in found):
        raise WireError(f"{name}: wanted visible ASCII of at most 200 characters each")
    return tuple(found)


def encode_published(generation: int) -> bytes:
    """The edge's answer to a publication: the generation it now has."""
    return dump_line({"v": PROTOCOL_VERSION, "ok": True, "generation": generation})


def decode_published(line: bytes) -> int:
    """The generation an edge now has; raises Refused if it said no."""
    message = load_line(line)
    check_version(message)
    raise_refusal(message)
    return number(message, "generation", at_most=MAX_GENERATION)
