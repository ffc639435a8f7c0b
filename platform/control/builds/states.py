"""The states of a build and every legal move.

Pure. What the builder is *doing* (its phase) is kept apart in `Build.phase`.
"""

from __future__ import annotations

from enum import StrEnum


class BuildState(StrEnum):
    """Where a build is, as control sees it."""

    QUEUED = "queued"  # no host has it yet
    RUNNING = "running"  # a host was told about it
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BuildEvent(StrEnum):
    """What happened to a build."""

    SEND = "send"
    LOSE = "lose"  # the host does not know it any more: it is sent again
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


S, E = BuildState, BuildEvent

TRANSITIONS: dict[BuildState, dict[BuildEvent, BuildState]] = {
    S.QUEUED: {E.SEND: S.RUNNING, E.FAIL: S.FAILED, E.CANCEL: S.CANCELLED},
    S.RUNNING: {E.LOSE: S.QUEUED, E.SUCCEED: S.SUCCEEDED, E.FAIL: S.FAILED, E.CANCEL: S.CANCELLED},
    S.SUCCEEDED: {},
    S.FAILED: {},
    S.CANCELLED: {},
}
FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED})


class IllegalTransition(Exception):  # noqa: N818 - reads as the fact it states
    """The event is not legal in this state; nothing was changed."""


def after(state: BuildState, event: BuildEvent) -> BuildState:
    """The state that follows, or IllegalTransition."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(f"a build that is {state} cannot {event}") from None
