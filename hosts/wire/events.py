"""What a host tells control: journaled, fsynced, numbered; shipping one twice changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hosts.wire.spec import MachineId
from hosts.wire.states import MachineState
from hosts.wire.wakes import WakeTrace


class Cause(StrEnum):
    """Why a session began."""

    DEPLOY = "deploy"  # first boot of a release
    REQUEST = "request"  # bytes on a stream
    API = "api"  # someone asked
    CHECKPOINT = "checkpoint"  # goes on after the host stopped it for its own work
    ADOPTED = "adopted"  # the agent found it running and had no open session for it


class EndCause(StrEnum):
    """Why a session ended."""

    IDLE = "idle"
    API = "api"
    CRASH = "crash"
    RETIRED = "retired"  # another release took over, or the app was deleted
    FAILED = "failed"
    CHECKPOINT = "checkpoint"


class EventKind(StrEnum):
    """The kinds of event."""

    STATE = "machine.state"
    SESSION_STARTED = "session.started"
    SESSION_ENDED = "session.ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One journal record. `seq` counts up by one per host journal; `event_id` is unique for ever.

    For STATE: `state`, and `code`/`detail` where it failed. For SESSION_*: `session_id`, `started_at_ms`, `cause`, and
    once ended `ended_at_ms`, `end_cause`. A SESSION_ENDED carries all of its session, so it may arrive without, or
    before, its SESSION_STARTED. Times are Unix milliseconds.

    With `wake` it tells a wake, with its `cause`, and nothing else counts. Such an event is a STATE that was already
    told, dated a millisecond before it came about: whoever does not know `wake` takes it for old news.
    """

    event_id: str
    seq: int
    kind: EventKind
    machine_id: MachineId
    at_ms: int
    state: MachineState | None = None
    code: str = ""
    detail: str = ""
    session_id: str = ""
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    cause: Cause | None = None
    end_cause: EndCause | None = None
    wake: WakeTrace | None = None


@dataclass(frozen=True, slots=True)
class EventBatch:
    """POST {control}/internal/v1/hosts/{host_id}/events; at most 500 events, in seq order."""

    host_id: str
    journal_id: str  # changes when a host's journal is started anew; (journal_id, seq) never repeats
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class EventAck:
    """The answer: all events up to and including this seq are stored for good."""

    acked_seq: int
