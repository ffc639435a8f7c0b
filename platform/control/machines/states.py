"""What control wants of a machine, and every legal move. Pure.

This is control's own side (`Machine.lifecycle`). What the machine *does* (`Machine.state`) is the host's to decide
and is taken over as reported: control never computes it, except for `declared` (no host has answered yet) and `lost`
(its host is gone).
"""

from __future__ import annotations

from enum import StrEnum

from hosts.wire.states import MachineState


class Lifecycle(StrEnum):
    """What control wants with a machine."""

    WANTED = "wanted"  # it should exist
    RETIRING = "retiring"  # it should go once drained
    GONE = "gone"  # its host has confirmed that nothing of it is left


class LifecycleEvent(StrEnum):
    """What control decided or learned."""

    RETIRE = "retire"
    REMOVED = "removed"


TRANSITIONS: dict[Lifecycle, dict[LifecycleEvent, Lifecycle]] = {
    Lifecycle.WANTED: {LifecycleEvent.RETIRE: Lifecycle.RETIRING},
    Lifecycle.RETIRING: {LifecycleEvent.REMOVED: Lifecycle.GONE},
    Lifecycle.GONE: {},
}

DECLARED = "declared"
LOST = "lost"
EMPTY = "empty"  # shown for an app that has no live machine; never stored
STATES = (DECLARED, *(s.value for s in MachineState), LOST)


class IllegalTransition(Exception):  # noqa: N818 - reads as the fact it states
    """The event is not legal in this state; nothing was changed."""


def after(state: Lifecycle, event: LifecycleEvent) -> Lifecycle:
    """The state that follows, or IllegalTransition."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(f"a machine that is {state} cannot {event}") from None
