"""The first line of every connection, and the answer to it (SPEC.md, section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tunnel.wire.codes import Refused
from tunnel.wire.line import (
    PROTOCOL_VERSION,
    WireError,
    check_version,
    child,
    dump_line,
    load_line,
    text,
    text_or_empty,
    truth,
)


class Kind(StrEnum):
    """What a host dials an edge for."""

    LINK = "link"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class HostHello:
    """From a host on the edge's link port."""

    kind: Kind
    host: str
    token: str
    session: str

    def encode(self) -> bytes:
        return dump_line(
            {"v": PROTOCOL_VERSION, "hello": self.kind, "host": self.host, "token": self.token, "session": self.session}
        )


@dataclass(frozen=True, slots=True)
class ToHost:
    """Where a stream leads: the host agent's own API."""

    host: str


@dataclass(frozen=True, slots=True)
class ToMachine:
    """Where a stream leads: the app of a machine."""

    machine: str
    may_wake: bool
    quiet: bool = False  # it does not count as activity; in OPEN only
    probe: bool = False  # nothing but the machine's state is wanted; in OPEN only


@dataclass(frozen=True, slots=True)
class OpenHello:
    """From control on the edge's control socket: pair this connection with a stream."""

    to: ToHost | ToMachine

    def encode(self) -> bytes:
        if isinstance(self.to, ToHost):
            return dump_line({"v": PROTOCOL_VERSION, "hello": "open", "to": {"host": self.to.host}})
        to = {"machine": self.to.machine}
        return dump_line({"v": PROTOCOL_VERSION, "hello": "open", "to": to, "may_wake": self.to.may_wake})


@dataclass(frozen=True, slots=True)
class RoutesHello:
    """From control on the edge's control socket: the next line is a route table."""

    def encode(self) -> bytes:
        return dump_line({"v": PROTOCOL_VERSION, "hello": "routes"})


@dataclass(frozen=True, slots=True)
class Welcome:
    """The edge's yes to a host, with the edge's name."""

    edge: str

    def encode(self) -> bytes:
        return dump_line({"v": PROTOCOL_VERSION, "ok": True, "edge": self.edge})


def decode_host_hello(line: bytes) -> HostHello:
    """A line from the link port."""
    message = load_line(line)
    check_version(message)
    try:
        kind = Kind(text(message, "hello"))
    except ValueError:
        raise WireError("hello: wanted link or data") from None
    return HostHello(kind, text(message, "host"), text(message, "token"), text(message, "session"))


def decode_control_hello(line: bytes) -> OpenHello | RoutesHello:
    """A line from the control socket."""
    message = load_line(line)
    check_version(message)
    match message.get("hello"):
        case "routes":
            return RoutesHello()
        case "open":
            to = child(message, "to")
            if "host" in to:
                return OpenHello(ToHost(text(to, "host")))
            return OpenHello(ToMachine(text(to, "machine"), truth(message, "may_wake")))
        case _:
            raise WireError("hello: wanted open or routes")


def decode_welcome(line: bytes) -> Welcome:
    """The edge's answer to a host; raises Refused if it said no."""
    message = load_line(line)
    check_version(message)
    raise_refusal(message)
    return Welcome(text(message, "edge"))


def encode_refusal(refused: Refused) -> bytes:
    """The last line of a connection that is not wanted."""
    return dump_line(
        {
            "v": PROTOCOL_VERSION,
            "ok": False,
            "code": refused.code[:100],
            "phase": refused.phase[:100],
            "message": refused.message[:1000],
        }
    )


def raise_refusal(message: dict[str, object]) -> None:
    """Raise Refused if this answer is a no."""
    if not truth(message, "ok"):
        raise Refused(text(message, "code"), text_or_empty(message, "phase"), text_or_empty(message, "message"))
