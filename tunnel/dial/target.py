"""What the dialer asks of its host agent: streams to machines, a gate before each machine, and news of activity.

The gate is how sleep stays invisible: bytes from the edge wait behind it until the machine runs, in TCP's own buffers.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Protocol

from tunnel.wire import RAN, Opened


class Watcher(Protocol):
    """Wants to know when the app first speaks on a stream. Either call may come more than once, or never."""

    def app_spoke(self) -> None:
        """The first byte from the app is here."""

    def stream_ended(self) -> None:
        """The app will not speak, or has finished."""


class Gate(Protocol):
    """Stands between edge bytes and one machine. `touch` and `is_open` are on the hot path."""

    def touch(self) -> None:
        """Bytes from the edge arrived. Called before `is_open`, with no await between the two and the write."""

    def is_open(self) -> bool:
        """Whether bytes may be written to the machine now."""

    async def wait(self) -> Watcher | None:
        """Return once the machine runs, waking it if need be; raise Refused to cut the stream.

        Whoever wants to know of the app's first byte after that is returned.
        """


@dataclass(frozen=True, slots=True)
class Target:
    """A connected, non-blocking stream socket to a machine's app. The dialer owns the socket from here on."""

    sock: socket.socket
    gate: Gate
    watcher: Watcher | None = None
    opened: Opened = RAN


class Handler(Protocol):
    """The host agent, as the dialer sees it."""

    async def open_machine(self, machine: str, *, may_wake: bool, request: str, quiet: bool = False) -> Target:
        """Wake the machine if that is allowed and connect to its app, or raise Refused. Quiet is not activity.

        Not cancelled when the client goes away, for others may wait for the same wake.
        """

    def machine_state(self, machine: str) -> str:
        """The machine's state, or `waking`; Refused if it is unknown. Changes nothing and is no activity."""

    async def open_host(self) -> socket.socket:
        """Connect to the agent's own API, or raise Refused."""

    def activity(self, edge: str, machine: str, in_flight: int, *, quiet: bool = False) -> None:
        """This edge now has so many requests of the machine in flight."""

    def link_lost(self, edge: str) -> None:
        """Forget every in-flight count of this edge."""


class OpenGate:
    """The gate of streams that are not to a machine."""

    def touch(self) -> None:
        return

    def is_open(self) -> bool:
        return True

    async def wait(self) -> None:
        return
