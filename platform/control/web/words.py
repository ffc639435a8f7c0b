"""What the pages call things: one word per state of an app, each with what it costs.

The host knows nine states of a machine and control three more; a person needs nine words. `paused`, `suspending` and
`suspended` all read "asleep", because all three wake on use and none is charged for running.
"""

from __future__ import annotations

from dataclasses import dataclass

from control.deploys.states import Outcome, Phase
from control.machines.states import DECLARED, EMPTY, LOST
from control.web import humane
from hosts.wire.commands import BuildPhase
from hosts.wire.events import Cause, EndCause
from hosts.wire.states import MachineState
from hosts.wire.wakes import Start

SECONDS_PER_HOUR = 3_600
DEPLOYING = "deploying"  # not a state of a machine: nothing is live yet, and a deploy is under way
DISK_ONLY = "costs disk only"
NOTHING = "costs nothing"


@dataclass(frozen=True, slots=True)
class StateWord:
    """A state as shown: `word` in the pill, `tone` picks its colour; `meaning`, `price`, `detail` stand beside it."""

    word: str
    tone: str
    meaning: str
    price: str
    detail: str = ""
    can_wake: bool = False
    can_sleep: bool = False
    moving: bool = False  # will change by itself soon: worth refreshing without a script


STATES: dict[str, StateWord] = {
    EMPTY: StateWord("empty", "empty", "nothing deployed yet", NOTHING),
    DEPLOYING: StateWord("deploying", "moving", "its first release is being made", NOTHING, moving=True),
    DECLARED: StateWord("starting", "moving", "its host is being asked", NOTHING, moving=True),
    MachineState.BOOTING: StateWord("starting", "moving", "booting its release", "", moving=True),
    MachineState.RUNNING: StateWord("running", "running", "serving", "", can_sleep=True),
    MachineState.RESUMING: StateWord("waking", "moving", "going on where it was", "", moving=True),
    MachineState.PAUSED: StateWord(
        "asleep", "asleep", "wakes on use", DISK_ONLY, "its memory is kept ready", can_wake=True
    ),
    MachineState.SUSPENDING: StateWord(
        "asleep", "asleep", "wakes on use", DISK_ONLY, "its memory is going to disk", can_wake=True
    ),
    MachineState.SUSPENDED: StateWord(
        "asleep", "asleep", "wakes on use", DISK_ONLY, "its memory is kept on disk", can_wake=True
    ),
    MachineState.STOPPED: StateWord(
        "stopped", "quiet", "starts fresh on use", DISK_ONLY, "its files are kept, its memory is not", can_wake=True
    ),
    MachineState.FAILED: StateWord("failed", "failed", "does not start by itself", DISK_ONLY, can_wake=True),
    MachineState.DESTROYED: StateWord("gone", "quiet", "removed", NOTHING),
    LOST: StateWord("lost", "failed", "its host is gone", NOTHING),
}


def state_word(state: str, *, rate_micros_per_s: int, currency: str) -> StateWord:
    """The word for a state, with the price of running at this rate where it runs."""
    found = STATES[state]
    if found.price:
        return found
    per_hour = humane.money(rate_micros_per_s * SECONDS_PER_HOUR, currency)
    return StateWord(
        found.word,
        found.tone,
        found.meaning,
        f"costs {per_hour} an hour",
        found.detail,
        can_wake=found.can_wake,
        can_sleep=found.can_sleep,
        moving=found.moving,
    )


CAUSES: dict[str, str] = {
    Cause.DEPLOY: "deploy",
    Cause.REQUEST: "request",
    Cause.API: "by hand",
    Cause.CHECKPOINT: "checkpoint",
    Cause.ADOPTED: "found running",
}
STARTS: dict[str, str] = {
    Start.RESUME: "went on where it was",
    Start.CHECKPOINT: "went on from its checkpoint",
    Start.COLD_BOOT: "started fresh",
}
WAKE_STEPS: dict[str, str] = {  # those of hosts/agent/starts.py; the guest's own are shown as they are
    "load": "load memory",
    "cont": "run on",
    "contract": "resume contract",
    "queue": "queue for a boot",
    "prepare": "prepare disk",
    "vmm": "VMM",
    "kernel": "kernel",
    "app": "start app",
    "listening": "app listens",
    "health": "health check",
}
UNTIL: dict[str, str] = {
    EndCause.IDLE: "until idle",
    EndCause.API: "until put to sleep",
    EndCause.CRASH: "until it crashed",
    EndCause.RETIRED: "until replaced",
    EndCause.FAILED: "until it failed",
    EndCause.CHECKPOINT: "until a checkpoint",
}
PHASES: dict[str, str] = {
    Phase.QUEUED: "queue",
    Phase.BUILD: "build",
    Phase.BOOT: "start and check",
    Phase.CHECKPOINT: "checkpoint",
    Phase.SWITCH: "switch",
}
BUILD_PHASES: dict[str, str] = {
    BuildPhase.WAITING: "waiting for a builder",
    BuildPhase.BOOTING: "starting a builder",
    BuildPhase.DETECTING: "detecting",
    BuildPhase.INSTALLING: "installing",
    BuildPhase.BUILDING: "building",
    BuildPhase.PACKING: "packing",
    BuildPhase.DONE: "done",
}
UNFINISHED = "under way"
OUTCOMES: dict[str, str] = {
    "": UNFINISHED,
    Outcome.SUCCEEDED: "went live",
    Outcome.FAILED: "failed",
    Outcome.SUPERSEDED: "overtaken",
}
OUTCOME_TONES: dict[str, str] = {
    "": "now",
    Outcome.SUCCEEDED: "past",
    Outcome.FAILED: "bad",
    Outcome.SUPERSEDED: "past",
}
LIVE_NOW = "live"
