"""Every state has one word and says what it costs."""

from __future__ import annotations

import pytest

from control.deploys.states import Outcome, Phase
from control.machines.states import EMPTY, STATES
from control.web import words
from control.web.words import state_word
from hosts.wire.events import Cause, EndCause
from hosts.wire.states import ASLEEP, MachineState


@pytest.mark.parametrize("state", [EMPTY, *STATES])
def test_every_state_is_one_word_with_its_price(state: str) -> None:
    word = state_word(state, rate_micros_per_s=5, currency="USD")
    assert word.word.isalpha()
    assert word.meaning
    assert word.price.startswith("costs ")


@pytest.mark.parametrize("state", sorted(ASLEEP))
def test_whatever_sleeps_wakes_on_use_and_costs_disk_only(state: MachineState) -> None:
    word = state_word(state, rate_micros_per_s=5, currency="USD")
    assert (word.word, word.meaning, word.price) == ("asleep", "wakes on use", "costs disk only")
    assert word.can_wake
    assert not word.can_sleep


def test_running_names_the_price_of_its_size_exactly() -> None:
    word = state_word(MachineState.RUNNING, rate_micros_per_s=5, currency="USD")
    assert word.price == "costs 0.018 USD an hour"
    assert word.can_sleep
    assert not word.can_wake


def test_no_cause_phase_or_outcome_is_without_a_word() -> None:
    assert set(words.CAUSES) == {str(cause) for cause in Cause}
    assert set(words.UNTIL) == {str(cause) for cause in EndCause}
    assert set(words.PHASES) == {str(phase) for phase in Phase if phase is not Phase.LIVE}
    assert set(words.OUTCOMES) == set(words.OUTCOME_TONES) == {"", *(str(outcome) for outcome in Outcome)}
