"""The app's last lines, kept on the host."""

from __future__ import annotations

from typing import cast

from hosts.agent.logs import MAX_LINES, TAIL_LINES, LogRing
from hosts.agent.parts import Guest
from hosts.guest.client import LogPage
from hosts.wire.commands import SleepDepth
from tests.hosts.agent.rig import Rig


async def test_the_logs_can_be_read_while_it_sleeps(rig: Rig) -> None:
    machine = await rig.machine()
    await machine.sleep(SleepDepth.SUSPENDED)
    assert machine.logs.page(0) == (("started python app.py",), 1)
    assert (await machine.report()).log_tail == ("started python app.py",)


class Lines:
    """A guest that has these lines."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    async def logs(self, after: int = 0) -> LogPage:
        return LogPage(tuple(self.lines[after:]), len(self.lines))


async def test_numbers_run_on_over_a_reboot_of_the_guest() -> None:
    ring = LogRing()
    await ring.pull(cast("Guest", Lines(["a", "b"])))
    ring.rebooted()
    await ring.pull(cast("Guest", Lines(["c"])))
    assert ring.page(0) == (("a", "b", "c"), 3)
    assert ring.page(2) == (("c",), 3)
    assert ring.page(3) == ((), 3)
    assert ring.page(99) == ((), 3)


async def test_only_the_last_lines_are_kept_and_their_numbers_stay() -> None:
    ring = LogRing()
    await ring.pull(cast("Guest", Lines([str(n) for n in range(MAX_LINES + 10)])))
    lines, following = ring.page(0)
    assert (lines[0], len(lines), following) == ("10", MAX_LINES, MAX_LINES + 10)
    assert ring.page(MAX_LINES + 8)[0] == (str(MAX_LINES + 8), str(MAX_LINES + 9))
    assert len(ring.tail()) == TAIL_LINES
