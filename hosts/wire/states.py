"""The states of a machine and every legal move between them.

All transitions live here. The table is pure: it reads no clock and does no IO. An illegal move raises and changes
nothing.
"""

from __future__ import annotations

from enum import StrEnum


class MachineState(StrEnum):
    """What a machine is doing, as its host sees it (glossary: `shared` design, section 2)."""

    STOPPED = "stopped"  # no process, no memory kept; release and writable disk remain
    BOOTING = "booting"  # QEMU runs, the app does not answer yet
    RUNNING = "running"  # vCPUs run and the app is ready
    PAUSED = "paused"  # vCPUs stopped, process kept
    SUSPENDING = "suspending"  # writing device state
    SUSPENDED = "suspended"  # memory and device state on disk, no process
    RESUMING = "resuming"  # QEMU or vCPUs started again, resume contract not yet met
    FAILED = "failed"  # broken, with a reason
    DESTROYED = "destroyed"  # gone


class MachineEvent(StrEnum):
    """What happened to a machine."""

    BOOT = "boot"
    READY = "ready"
    PAUSE = "pause"
    SUSPEND = "suspend"
    SAVED = "saved"
    SAVE_FAILED = "save_failed"
    RESUME = "resume"
    RESUME_FAILED = "resume_failed"  # the host could start no VMM just now; the snapshot is as good as before
    CRASH = "crash"  # the VMM ended or hung unasked, or a snapshot was refused: memory lost, disk kept
    FAIL = "fail"  # gave up: will not start again unless asked
    DESTROY = "destroy"


S, E = MachineState, MachineEvent

TRANSITIONS: dict[MachineState, dict[MachineEvent, MachineState]] = {
    S.STOPPED: {E.BOOT: S.BOOTING, E.FAIL: S.FAILED, E.DESTROY: S.DESTROYED},
    S.BOOTING: {
        E.READY: S.RUNNING,
        E.CRASH: S.STOPPED,
        E.FAIL: S.FAILED,
        E.DESTROY: S.DESTROYED,
    },
    S.RUNNING: {
        E.PAUSE: S.PAUSED,
        E.CRASH: S.STOPPED,
        E.FAIL: S.FAILED,
        E.DESTROY: S.DESTROYED,
    },
    S.PAUSED: {
        E.RESUME: S.RESUMING,
        E.SUSPEND: S.SUSPENDING,
        E.CRASH: S.STOPPED,
        E.DESTROY: S.DESTROYED,
    },
    S.SUSPENDING: {
        E.SAVED: S.SUSPENDED,
        E.SAVE_FAILED: S.PAUSED,
        E.CRASH: S.STOPPED,
        E.DESTROY: S.DESTROYED,
    },
    S.SUSPENDED: {E.RESUME: S.RESUMING, E.CRASH: S.STOPPED, E.DESTROY: S.DESTROYED},
    S.RESUMING: {
        E.READY: S.RUNNING,
        E.RESUME_FAILED: S.SUSPENDED,
        E.CRASH: S.STOPPED,
        E.FAIL: S.FAILED,
        E.DESTROY: S.DESTROYED,
    },
    S.FAILED: {E.BOOT: S.BOOTING, E.DESTROY: S.DESTROYED},
    S.DESTROYED: {},
}

ASLEEP = frozenset({S.PAUSED, S.SUSPENDING, S.SUSPENDED})


class IllegalTransition(Exception):  # noqa: N818 - reads as the fact it states
    """The event is not legal in this state; nothing was changed."""

    def __init__(self, state: MachineState, event: MachineEvent) -> None:
        super().__init__(f"a machine that is {state} cannot {event}")
        self.state = state
        self.event = event


def after(state: MachineState, event: MachineEvent) -> MachineState:
    """The state that follows, or IllegalTransition."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None
