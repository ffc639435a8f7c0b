"""What a guest agent may answer, checked.

Everything here comes from a machine that a stranger's code may have taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hosts.guest.lines import sanitise
from hosts.wire.commands import Socket, Step

PHASES = frozenset({"idle", "running", "backoff", "exited", "stopped"})
MAX_SOCKETS = 64  # listening in a guest, that are read
MAX_LINES = 2000  # of its log, at a time
MAX_STEPS = 16  # of one start
MAX_STEP_MS = 24 * 3600 * 1000  # of one step
MAX_PORT = 65535  # in a guest's answer
MAX_MESSAGE_CHARS = 500  # of a guest's message


class GuestError(Exception):
    """The guest agent cannot be reached, did not answer in time, refused, or answered nonsense."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code  # guest:unreachable, guest:timeout, guest:refused, guest:failed, guest:bad_answer
        self.message = message


@dataclass(frozen=True, slots=True)
class Hello:
    """The agent is there."""

    agent: int
    phase: str
    up_ms: int  # since the guest's kernel started


@dataclass(frozen=True, slots=True)
class Listening:
    """The app is served on `port` of the guest's address."""

    port: int
    listening: tuple[Socket, ...]


@dataclass(frozen=True, slots=True)
class NotListening:
    """The app is not there, and what was seen instead."""

    code: str  # check:not_listening, app:exited
    message: str
    listening: tuple[Socket, ...]
    log_tail: tuple[str, ...]
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class GuestStatus:
    """The app as the agent sees it now."""

    phase: str
    pid: int | None
    restarts: int
    exit_code: int | None
    port: int | None
    listening: tuple[Socket, ...]


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines of the app's output and the number to ask for next."""

    lines: tuple[str, ...]
    next: int


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A command's end."""

    exit_code: int
    output: str
    timed_out: bool


class Answer:
    """One JSON object of the agent; every read checks type and range and raises GuestError."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    @property
    def ok(self) -> bool:
        return self._fields.get("ok") is True

    def error(self) -> GuestError:
        """The answer as the refusal it is."""
        code = self._fields.get("code")
        known = code if code in ("guest:refused", "guest:failed", "guest:bad_request") else "guest:bad_answer"
        return GuestError(str(known), self.text("message", default="the guest agent refused"))

    def text(self, name: str, *, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            raise _nonsense(name)
        return sanitise(value)[:MAX_MESSAGE_CHARS]

    def block(self, name: str, limit_chars: int) -> str:
        """Text of several lines, as it is but for its length."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise _nonsense(name)
        return value[-limit_chars:]

    def number(self, name: str, *, low: int = 0, high: int = 1 << 53) -> int:
        value = self._fields.get(name)
        if type(value) is not int or not low <= value <= high:
            raise _nonsense(name)
        return value

    def number_or_none(self, name: str, *, low: int = 0, high: int = 1 << 53) -> int | None:
        return None if self._fields.get(name) is None else self.number(name, low=low, high=high)

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def phase(self) -> str:
        phase = self._fields.get("phase")
        if phase not in PHASES:
            raise _nonsense("phase")
        return str(phase)

    def lines(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise _nonsense(name)
        return tuple(sanitise(line) for line in value[-MAX_LINES:] if isinstance(line, str))

    def sockets(self) -> tuple[Socket, ...]:
        value = self._fields.get("listening", [])
        if not isinstance(value, list):
            raise _nonsense("listening")
        found = []
        for item in value[:MAX_SOCKETS]:
            match item:
                # `True` is an int to Python and not to the wire: control would refuse the whole host's report for it.
                case [str(address), int(port)] if type(port) is int and 0 < port <= MAX_PORT:
                    found.append(Socket(sanitise(address)[:64], port))
                case _:
                    raise _nonsense("listening")
        return tuple(found)

    def steps(self) -> tuple[Step, ...]:
        value = self._fields.get("steps")
        if not isinstance(value, list):
            raise _nonsense("steps")
        found = []
        for item in value[:MAX_STEPS]:
            match item:
                case [str(name), int(ms) | float(ms)] if 0 <= ms <= MAX_STEP_MS:  # no NaN, no infinity either
                    found.append(Step(sanitise(name)[:64], float(ms)))
                case _:
                    raise _nonsense("steps")
        return tuple(found)


def _nonsense(name: str) -> GuestError:
    return GuestError("guest:bad_answer", f"the guest agent's `{name}` makes no sense")
