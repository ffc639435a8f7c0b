"""What every connection of the edge shares."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tunnel.edge.access import AccessLog
from tunnel.edge.activity import Activity
from tunnel.edge.limits import Limits
from tunnel.edge.pages import Pages
from tunnel.edge.pipes import KeptPipes
from tunnel.edge.router import Router
from tunnel.edge.status import States
from tunnel.edge.streams import Streams
from tunnel.edge.wakes import Wakes

if TYPE_CHECKING:
    from tunnel.edge.listener import ClientConnection


@dataclass(slots=True)
class Core:
    """The edge's parts, and its coarse clock."""

    router: Router
    streams: Streams
    states: States
    wakes: Wakes
    kept: KeptPipes
    activity: Activity
    access: AccessLog
    pages: Pages
    limits: Limits
    ports: frozenset[int]  # that a Host header may name
    trusted: frozenset[str]  # addresses of proxies whose X-Forwarded-* is kept
    cookie_suffix: bytes
    time: Callable[[], float]  # the event loop's clock
    now: float  # that clock at the last sweep: for deadlines, where a second does not matter
    draining: bool = False
    clients: set[ClientConnection] = field(default_factory=set)
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _id_prefix: str = field(default_factory=lambda: secrets.token_hex(4))

    def next_id(self) -> str:
        """An id for a request, unique over restarts."""
        return f"{self._id_prefix}-{next(self._ids):x}"
