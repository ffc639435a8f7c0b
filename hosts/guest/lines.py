"""Makes a line a guest printed safe to show: in a terminal, in a log, in a page.

Whatever comes out of a machine was written by a stranger. Control characters and the marks that reorder text become
visible escapes; colours are dropped, since half a colour code is worse than none.
"""

from __future__ import annotations

import re

MAX_LINE_CHARS = 2000  # of a log line as it is shown

# Colours and styles only: dropped. Every other sequence (cursor, title, clipboard, links) is shown as what it is.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
# C0 but tab, DEL, C1, line and paragraph separators, bidi and invisible marks, byte order mark, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def sanitise(line: str) -> str:
    """One line, bounded, with nothing in it that acts on a terminal."""
    # A progress bar repaints one line with carriage returns: what would be left standing is its last state.
    line = line.rstrip("\r\n").rpartition("\r")[2][: MAX_LINE_CHARS * 2]
    shown = _UNSAFE.sub(_escape, _STYLE.sub("", line))
    return shown if len(shown) <= MAX_LINE_CHARS else shown[:MAX_LINE_CHARS] + "…"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
