"""Guessing is slowed down, within bounds."""

from __future__ import annotations

from control.web.throttle import Throttle


class Clock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_limit_is_reached_and_ends_with_the_window() -> None:
    clock = Clock()
    throttle = Throttle(limit=3, window_s=60, clock=clock)
    for second in (0, 10, 20):
        clock.now = second
        assert throttle.wait_s("ada") == 0
        throttle.count("ada")
    assert throttle.wait_s("ada") == 40
    assert throttle.wait_s("grace") == 0
    clock.now = 59.5
    assert throttle.wait_s("ada") == 1
    clock.now = 60
    assert throttle.wait_s("ada") == 0


def test_the_right_password_starts_it_over() -> None:
    throttle = Throttle(limit=1, window_s=60)
    throttle.count("ada")
    assert throttle.wait_s("ada") > 0
    throttle.forget("ada")
    assert throttle.wait_s("ada") == 0


def test_a_full_record_forgets_the_oldest_and_never_grows() -> None:
    throttle = Throttle(limit=1, window_s=60, clock=Clock(), max_keys=100)
    for number in range(1_000):
        throttle.count(f"key {number}")
    assert throttle.wait_s("key 0") == 0
    assert throttle.wait_s("key 899") == 0
    assert throttle.wait_s("key 900") == 60
    assert throttle.wait_s("key 999") == 60
