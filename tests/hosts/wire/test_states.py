"""The table of a machine's states, walked pair by pair."""

from __future__ import annotations

import itertools

import pytest

from hosts.wire.states import ASLEEP, TRANSITIONS, IllegalTransition, MachineEvent, MachineState, after

ALL_PAIRS = list(itertools.product(MachineState, MachineEvent))
MEMORY_KEPT = {MachineState.PAUSED, MachineState.SUSPENDING, MachineState.SUSPENDED}


@pytest.mark.parametrize(("state", "event"), ALL_PAIRS)
def test_every_pair_either_moves_or_is_refused_by_name(state: MachineState, event: MachineEvent) -> None:
    if event in TRANSITIONS[state]:
        assert after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=f"{state} cannot {event}") as refused:
            after(state, event)
        assert (refused.value.state, refused.value.event) == (state, event)


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(MachineState)


def test_every_state_but_destroyed_can_be_destroyed() -> None:
    for state in MachineState:
        if state is not MachineState.DESTROYED:
            assert after(state, MachineEvent.DESTROY) is MachineState.DESTROYED
    assert TRANSITIONS[MachineState.DESTROYED] == {}


def test_every_state_with_a_process_or_memory_can_crash() -> None:
    without = {MachineState.STOPPED, MachineState.FAILED, MachineState.DESTROYED}
    for state in set(MachineState) - without:
        assert after(state, MachineEvent.CRASH) is MachineState.STOPPED


def test_running_is_only_reached_through_ready() -> None:
    into_running = {
        event for moves in TRANSITIONS.values() for event, to in moves.items() if to is MachineState.RUNNING
    }
    assert into_running == {MachineEvent.READY}


def test_asleep_means_memory_is_kept() -> None:
    assert ASLEEP == MEMORY_KEPT


def test_every_state_can_be_reached_from_stopped() -> None:
    reached, todo = set(), [MachineState.STOPPED]
    while todo:
        state = todo.pop()
        if state not in reached:
            reached.add(state)
            todo.extend(TRANSITIONS[state].values())
    assert reached == set(MachineState)
