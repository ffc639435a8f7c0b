"""How these tests read an answer: as a person does, and as the page's own polling does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
HTMX = {"HX-Request": "true"}


def text_of(answer: Answer) -> str:
    """What a person reads, in one line."""
    words = " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())
    return re.sub(r" ([,:;])", r"\1", words)


def marks(html: str) -> list[str]:
    """What the page would say it has."""
    return re.findall(r'name="seen" value="([^"]+)"', html)


def changed(answer: Answer) -> list[str]:
    """The parts that a poll brought."""
    return re.findall(r'<div id="([^"]+)" hx-swap-oob', answer.content.decode())
