"""Lines on the tunnel's own connections."""

from __future__ import annotations

import pytest

from tunnel.proto.lines import LineBuffer
from tunnel.wire import WireError


def test_lines_come_out_whole_however_they_came_in() -> None:
    lines = LineBuffer()
    for i in range(8):
        lines.feed(b"ab\ncd\nef"[i : i + 1])
    assert [lines.take_line() for _ in range(3)] == [b"ab\n", b"cd\n", None]
    lines.feed(b"\nrest")
    assert lines.take_line() == b"ef\n"
    assert lines.take_rest() == b"rest"
    assert lines.take_line() is None


@pytest.mark.parametrize("data", [b"x" * 11, b"x" * 11 + b"\n"])
def test_a_long_line_is_refused(data: bytes) -> None:
    lines = LineBuffer(10)
    lines.feed(data)
    with pytest.raises(WireError):
        lines.take_line()


def test_the_limit_can_be_raised_for_a_table() -> None:
    lines = LineBuffer(10)
    lines.set_limit(1000)
    lines.feed(b"x" * 500)
    assert lines.take_line() is None
    lines.feed(b"\n")
    assert lines.take_line() == b"x" * 500 + b"\n"
