"""The phases of a deploy and every legal move. Pure.

A phase says what is being done; the outcome says how it ended and is empty until then. A failed deploy keeps the
phase it failed in. `switch` is the point of no return: from there it can only go live.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """What a deploy is doing."""

    QUEUED = "queued"
    BUILD = "build"
    BOOT = "boot"  # a new machine beside the old one, until its app answers
    CHECKPOINT = "checkpoint"
    SWITCH = "switch"  # the route names the new machine; the edges are being told
    LIVE = "live"


class Outcome(StrEnum):
    """How a deploy ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SUPERSEDED = "superseded"  # a newer push took its place, or the app was deleted


class DeployEvent(StrEnum):
    """What moves a deploy on."""

    START_BUILD = "start_build"
    BUILT = "built"  # or nothing to build: the image is there already
    RUNNING = "running"
    CHECKPOINTED = "checkpointed"
    SWITCHED = "switched"


P, E = Phase, DeployEvent

TRANSITIONS: dict[Phase, dict[DeployEvent, Phase]] = {
    P.QUEUED: {E.START_BUILD: P.BUILD, E.BUILT: P.BOOT},
    P.BUILD: {E.BUILT: P.BOOT},
    P.BOOT: {E.RUNNING: P.CHECKPOINT},
    P.CHECKPOINT: {E.CHECKPOINTED: P.SWITCH},
    P.SWITCH: {E.SWITCHED: P.LIVE},
    P.LIVE: {},
}

# Before the point of no return a deploy may still fail or be superseded.
ABORTABLE = frozenset({P.QUEUED, P.BUILD, P.BOOT, P.CHECKPOINT})


class IllegalTransition(Exception):  # noqa: N818 - reads as the fact it states
    """The event is not legal in this phase; nothing was changed."""


def after(phase: Phase, event: DeployEvent) -> Phase:
    """The phase that follows, or IllegalTransition."""
    try:
        return TRANSITIONS[phase][event]
    except KeyError:
        raise IllegalTransition(f"a deploy in phase {phase} cannot be {event}") from None
