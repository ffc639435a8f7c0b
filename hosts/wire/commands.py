"""The host agent's API: requests and answers (HTTP/JSON through a stream; SPEC.md lists the paths)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hosts.wire.events import Cause
from hosts.wire.spec import ImageDigest, MachineId
from hosts.wire.states import MachineState
from hosts.wire.wakes import Start as Start
from hosts.wire.wakes import Step as Step


class SleepDepth(StrEnum):
    """How deep to sleep."""

    PAUSED = "paused"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class SleepRequest:
    """POST /v1/machines/{id}/sleep. Refused with 409 `machine:busy` while something is in flight, unless `force`."""

    to: SleepDepth = SleepDepth.PAUSED


@dataclass(frozen=True, slots=True)
class WakeRequest:
    """POST /v1/machines/{id}/wake."""

    cause: Cause = Cause.API


@dataclass(frozen=True, slots=True)
class Socket:
    """A TCP socket the app listens on, as the guest agent read it."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not work: stable code, the phase it happened in, one sentence for a person."""

    code: str  # e.g. "check:not_listening", "boot:timeout", "app:exited", "build:timeout"
    phase: str
    message: str


@dataclass(frozen=True, slots=True)
class StartReport:
    """What a start did: which kind, why that kind, and its steps."""

    start: Start
    cause: Cause
    reason: str  # why not a resume, where it was not; else ""
    at_ms: int  # Unix time in milliseconds
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineReport:
    """GET /v1/machines/{id} (with `?wait_s=N`: when the state is no longer booting or resuming, or after N s)."""

    machine_id: MachineId
    state: MachineState
    since_ms: int
    release: int
    failure: Failure | None = None
    port: int | None = None  # where the app is served from, once found
    listening: tuple[Socket, ...] = ()
    log_tail: tuple[str, ...] = ()  # the app's last lines, at most 40
    in_flight: int = 0
    checkpoint: bool = False  # a checkpoint of the healthy machine is kept
    last_start: StartReport | None = None
    disk_bytes: int = 0  # what the machine's folder occupies


class BuildPhase(StrEnum):
    """Where a build is."""

    WAITING = "waiting"
    BOOTING = "booting"
    DETECTING = "detecting"
    INSTALLING = "installing"
    BUILDING = "building"
    PACKING = "packing"
    DONE = "done"


class Outcome(StrEnum):
    """How something ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """PUT /v1/builds/{id}: declare a build. Then PUT /v1/builds/{id}/source with a tar stream starts it."""

    build_id: str  # 32 lower-case hex digits
    app: str
    timeout_s: int = 900


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A finished image and how to run it."""

    digest: ImageDigest
    size_bytes: int
    kind: str  # "python", "node", "static"
    command: str  # the process type `web`
    cwd: str = "/app"


@dataclass(frozen=True, slots=True)
class BuildReport:
    """GET /v1/builds/{id}?after=N&wait_s=S: phase, outcome, and log lines N.. (`next` is the N to ask for next)."""

    build_id: str
    phase: BuildPhase
    outcome: Outcome | None
    failure: Failure | None
    image: BuiltImage | None
    lines: tuple[str, ...] = ()
    next: int = 0


@dataclass(frozen=True, slots=True)
class OutboundName:
    """A name that a machine with egress `allowlist` asked its resolver for."""

    name: str  # as the guest wrote it, in lower case: not to be trusted
    allowed: bool  # at the last question
    count: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class OutboundNames:
    """GET /v1/machines/{id}/outbound: at most 256 names, those asked for last first."""

    names: tuple[OutboundName, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The body of every answer that is not 2xx."""

    code: str
    message: str
