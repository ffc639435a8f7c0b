"""The kernel command line: part of what a snapshot must match."""

from __future__ import annotations

from hosts.guest.cmdline import Role, kernel_cmdline


def test_it_is_the_same_for_every_machine() -> None:
    assert kernel_cmdline(tsc_khz=2_000_000) == kernel_cmdline(Role.MACHINE, tsc_khz=2_000_000)


def test_only_tcg_is_told_the_counters_rate() -> None:
    assert "tsc" not in kernel_cmdline()
    assert kernel_cmdline(tsc_khz=2_000_000).endswith("tsc_early_khz=2000000 tsc=reliable")


def test_a_builder_is_told_that_it_is_one() -> None:
    assert "burrow.role=builder" in kernel_cmdline(Role.BUILDER).split()


def test_only_a_machine_that_sleeps_clears_what_it_frees() -> None:
    assert "init_on_free=1" in kernel_cmdline().split()
    assert "init_on_free=1" not in kernel_cmdline(Role.BUILDER).split()
