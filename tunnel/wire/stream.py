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


def decode_open(line: bytes, *, host: str) -> Open:
    """A line the edge wrote on an idle data connection of `host`."""
    message = load_line(line)
    check_version(message)
    to = child(message, "open")
    if to.get("host") is True:
        return Open(ToHost(host))
    quiet, probe = truth_or_false(to, "quiet"), truth_or_false(to, "probe")
    return Open(ToMachine(text(to, "machine"), truth(to, "may_wake"), quiet, probe), text_or_empty(to, "request"))


def check_opened(line: bytes) -> None:
    """The host's answer: returns if the stream is open, raises Refused if not."""
    if line == OPENED_OK:
        return
    message = load_line(line)
    check_version(message)
    raise_refusal(message)
