"""Each table of states: every (state, event) pair is either a legal move or refused, and ends are ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest

from control.builds import states as builds
from control.deploys import states as deploys
from control.machines import states as machines

TABLES: list[
    tuple[dict[Any, dict[Any, Any]], type[StrEnum], type[StrEnum], Callable[[Any, Any], Any], type[Exception]]
] = [
    (builds.TRANSITIONS, builds.BuildState, builds.BuildEvent, builds.after, builds.IllegalTransition),
    (deploys.TRANSITIONS, deploys.Phase, deploys.DeployEvent, deploys.after, deploys.IllegalTransition),
    (machines.TRANSITIONS, machines.Lifecycle, machines.LifecycleEvent, machines.after, machines.IllegalTransition),
]


@pytest.mark.parametrize("table", TABLES)
def test_every_pair_moves_or_is_refused(table: Any) -> None:
    transitions, states, events, after, illegal = table
    assert set(transitions) == set(states)
    for state, event in itertools.product(states, events):
        if event in transitions[state]:
            assert after(state, event) in states
        else:
            with pytest.raises(illegal):
                after(state, event)


@pytest.mark.parametrize("table", TABLES)
def test_every_event_is_used_and_every_state_reached(table: Any) -> None:
    transitions, states, events, _, _ = table
    assert {e for moves in transitions.values() for e in moves} == set(events)
    first = next(iter(states))
    assert {s for moves in transitions.values() for s in moves.values()} | {first} == set(states)


def test_a_build_that_ended_stays_ended() -> None:
    assert all(not builds.TRANSITIONS[s] for s in builds.FINAL)


def test_from_the_switch_on_a_deploy_cannot_be_given_up() -> None:
    assert set(deploys.Phase) - deploys.ABORTABLE == {deploys.Phase.SWITCH, deploys.Phase.LIVE}
