"""How a start went, step by step, and what a wake was like for the request that caused it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Start(StrEnum):
    """How a run of a machine began."""

    COLD_BOOT = "cold_boot"
    RESUME = "resume"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a start and how long it took."""

    name: str
    ms: float


@dataclass(frozen=True, slots=True)
class WakeTrace:
    """One wake, from the request that caused it to the first byte of its answer. Its cause is the event's `cause`."""

    at_ms: int  # when that request reached the host
    request: str = ""  # its id, as the edge's access log has it; empty where no request caused the wake
    kept: bool = False  # it came on a stream that `request` had opened earlier: a WebSocket, or a kept pipe
    waited: int = 0  # requests that waited for this wake
    start: Start | None = None  # None: nothing was begun
    reason: str = ""  # why not a resume, where it was not; else ""
    queue_ms: float = 0.0  # before the first step: another change of the machine under way, or a back-off
    ready_ms: float = 0.0  # until bytes could pass, or until it was given up
    first_byte_ms: float | None = None  # until the app's first byte on the causing stream; None: none came in time
    code: str = ""  # why it failed, if it did
    phase: str = ""  # where
    steps: tuple[Step, ...] = ()
