"""Lines that strangers' programs print are harmless once stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.builds.lines import LINE_CHARS_MAX, clean


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain text\ttab", "plain text\ttab"),
        ("\x1b[1;32mgreen\x1b[0m", "green"),
        ("\x1b]52;c;cm0gLXJm\x07", "\\x1b]52;c;cm0gLXJm\\x07"),
        ("\x1b]8;;http://x\x1b\\link", "\\x1b]8;;http://x\\x1b\\link"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("10%\r50%\r100%", "100%"),
        ("done\r\n", "done"),
        ("a\0b", "a\\x00b"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_what_a_terminal_could_obey_is_shown_instead(printed: str, shown: str) -> None:
    assert clean(printed) == shown


@given(st.text())
def test_nothing_hostile_is_left(printed: str) -> None:
    line = clean(printed)
    assert len(line) <= LINE_CHARS_MAX
    assert not any(ord(c) < 0x20 and c != "\t" for c in line)
    assert not set(line) & set("\x1b\x7f\x9b\u202a\u202e\u2066\u200b\u2028")
    assert clean(line) == line
