"""OPEN and OPENED: what is said on a data connection before it is a plain byte pipe (SPEC.md, section 2)."""

from __future__ import annotations

from dataclasses import dataclass

from tunnel.wire.hello import ToHost, ToMachine, raise_refusal
from tunnel.wire.line import (
    PROTOCOL_VERSION,
    check_version,
    child,
    dump_line,
    load_line,
    text,
    text_or_empty,
    truth,
    truth_or_false,
)

OPENED_OK = dump_line({"v": PROTOCOL_VERSION, "ok": True})
CAUSED = "caused"  # this stream's request woke the machine
WAITED = "waited"  # it waited for a wake that another one caused
MAX_WAKE_MS = 1e9  # of a wake, as the host tells it


@dataclass(frozen=True, slots=True)
class Open:
    """Edge to host: connect this data connection."""

    to: ToHost | ToMachine
    request: str = ""  # id of the request that caused it, for wake traces

    def encode(self) -> bytes:
        if isinstance(self.to, ToHost):
            return dump_line({"v": PROTOCOL_VERSION, "open": {"host": True}})
        to: dict[str, object] = {"machine": self.to.machine, "request": self.request, "may_wake": self.to.may_wake}
        if self.to.quiet:
            to["quiet"] = True
        if self.to.probe:
            to["probe"] = True
        return dump_line({"v": PROTOCOL_VERSION, "open": to})


@dataclass(frozen=True, slots=True)
class Opened:
    """Host to edge: the stream is open. How it came to be: for the edge's access log only."""

    wake: str = ""  # CAUSED or WAITED; empty if the machine ran already, or an older host does not say
    wake_ms: float = 0.0  # from the stream's request at the host until the machine was ready

    def encode(self) -> bytes:
        if not self.wake:
            return OPENED_OK
        return dump_line({"v": PROTOCOL_VERSION, "ok": True, "wake": self.wake, "wake_ms": self.wake_ms})


RAN = Opened()


def decode_open(line: bytes, *, host: str) -> Open:
    """A line the edge wrote on an idle data connection of `host`."""
    message = load_line(line)
    check_version(message)
    to = child(message, "open")
    if to.get("host") is True:
        return Open(ToHost(host))
    quiet, probe = truth_or_false(to, "quiet"), truth_or_false(to, "probe")
    return Open(ToMachine(text(to, "machine"), truth(to, "may_wake"), quiet, probe), text_or_empty(to, "request"))


def check_opened(line: bytes) -> Opened:
    """The host's answer: how the stream was opened, or raises Refused if it was not."""
    if line == OPENED_OK:
        return RAN
    message = load_line(line)
    check_version(message)
    raise_refusal(message)
    wake, ms = message.get("wake"), message.get("wake_ms")
    # For a log only: what is not understood is left out, and no stream is lost for it.
    if wake in (CAUSED, WAITED) and isinstance(ms, (int, float)) and 0 <= ms <= MAX_WAKE_MS:
        return Opened(str(wake), float(ms))
    return RAN
