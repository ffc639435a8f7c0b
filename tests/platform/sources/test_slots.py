"""The bound on git processes."""

from __future__ import annotations

from control.sources.slots import Slots


def test_there_is_a_limit_in_all_and_one_for_each_user() -> None:
    slots = Slots(most=3, most_per_user=2)
    assert [slots.take(1) for _ in range(3)] == [True, True, False]
    assert [slots.take(2), slots.take(3)] == [True, False]
    slots.give_back(1)
    assert slots.take(3)
