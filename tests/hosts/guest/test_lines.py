"""Lines from a stranger, shown in terminals and pages."""

from __future__ import annotations

import pytest

from hosts.guest.lines import MAX_LINE_CHARS, sanitise


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text, with é and 漢字", "plain text, with é and 漢字"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
        ("\x1b]8;;http://evil\x1b\\click", "\\x1b]8;;http://evil\\x1b\\click"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("a\x00b\x7f\x9bc", "a\\x00b\\x7f\\x9bc"),
        ("tab\tstays", "tab\tstays"),
        ("10%\r50%\r100%", "100%"),
        ("ends\r\n", "ends"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\ufeffmark\u200b", "\\ufeffmark\\u200b"),
        ("\ud800", "\\ud800"),
        ("two\u2028lines", "two\\u2028lines"),
    ],
)
def test_sanitise(raw: str, shown: str) -> None:
    assert sanitise(raw) == shown


def test_long_lines_are_cut() -> None:
    assert sanitise("x" * 100_000) == "x" * MAX_LINE_CHARS + "…"


def test_escaping_does_not_make_a_line_grow_past_its_bound() -> None:
    assert len(sanitise("\x01" * 100_000)) == MAX_LINE_CHARS + 1
