"""The table of names has a bound, whatever a guest asks for."""

from __future__ import annotations

from hosts.net.outbound import NAMES_MAX, Outbound
from hosts.wire.commands import OutboundName


def test_it_counts_and_remembers_the_newest() -> None:
    table = Outbound()
    table.note("a.example", allowed=False, now_ms=1)
    for n in range(NAMES_MAX - 1):
        table.note(f"{n}.example", allowed=True, now_ms=2)
    table.note("a.example", allowed=True, now_ms=3)
    table.note("new.example", allowed=False, now_ms=4)
    names = table.newest_first()
    assert len(names) == NAMES_MAX
    assert names[:2] == (OutboundName("new.example", False, 1, 4), OutboundName("a.example", True, 2, 3))
    assert "0.example" not in {one.name for one in names}
