"""Control messages on a link (SPEC.md, section 3). They carry no version: the hello settled it."""

from __future__ import annotations

from dataclasses import dataclass

from tunnel.wire.line import dump_line, load_line, number, text, truth_or_false

MAX_NEED = 4096  # connections asked for in one message
MAX_IN_FLIGHT = 10**9  # that a message can say
MAX_PING = 2**63 - 1  # that a message can say


@dataclass(frozen=True, slots=True)
class Need:
    """Edge to host: dial `n` more data connections."""

    n: int

    def encode(self) -> bytes:
        return dump_line({"m": "need", "n": self.n})


@dataclass(frozen=True, slots=True)
class Activity:
    """Edge to host: this edge has so many requests of the machine in flight."""

    machine: str
    in_flight: int
    quiet: bool = False  # they keep the machine from falling asleep, but do not begin its idle period anew

    def encode(self) -> bytes:
        message: dict[str, object] = {"m": "activity", "machine": self.machine, "in_flight": self.in_flight}
        if self.quiet:
            message["quiet"] = True
        return dump_line(message)


@dataclass(frozen=True, slots=True)
class Ping:
    """Either way; answered by a Pong with the same `t`."""

    t: int

    def encode(self) -> bytes:
        return dump_line({"m": "ping", "t": self.t})


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a Ping."""

    t: int

    def encode(self) -> bytes:
        return dump_line({"m": "pong", "t": self.t})


Message = Need | Activity | Ping | Pong


def decode_message(line: bytes) -> Message | None:
    """One link message; None for a kind this version does not know, which is ignored."""
    message = load_line(line)
    match text(message, "m"):
        case "need":
            return Need(number(message, "n", at_most=MAX_NEED))
        case "activity":
            in_flight = number(message, "in_flight", at_most=MAX_IN_FLIGHT)
            return Activity(text(message, "machine"), in_flight, truth_or_false(message, "quiet"))
        case "ping":
            return Ping(number(message, "t", at_most=MAX_PING))
        case "pong":
            return Pong(number(message, "t", at_most=MAX_PING))
        case _:
            return None
