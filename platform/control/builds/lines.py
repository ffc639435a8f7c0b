"""Makes lines that strangers' programs printed safe to show in a terminal, a log and a page. Pure.

Colours are dropped; whatever else could move a cursor, set a clipboard, hide text or turn its direction is shown as
an escape. A carriage return (progress bars) keeps only what it left standing.
"""

from __future__ import annotations

import re

LINE_CHARS_MAX = 2000
CUT = " … (cut)"

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# C0 (but tab), DEL and C1 controls; line and paragraph separators; bidirectional and other invisible format
# characters; lone surrogates.
HOSTILE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def clean(line: str) -> str:
    """One line, harmless and of bounded length."""
    if "\x1b" in line:
        line = COLOUR.sub("", line)
    line = line.rstrip("\r\n")
    if "\r" in line:
        line = line.rsplit("\r", 1)[1]
    line = HOSTILE.sub(_escape, line)
    if len(line) > LINE_CHARS_MAX:
        line = line[: LINE_CHARS_MAX - len(CUT)] + CUT
    return line


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
