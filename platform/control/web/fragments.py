"""Parts of a page that keep themselves fresh.

Each part carries a mark of what it shows; a poll sends the marks it has and gets only the parts that differ, or 204.
So a part that did not change is never replaced: focus, selection and a screen reader's place stay where they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.messages import get_messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

MARK_CHARS = 16
MARKS_MAX = 40  # more than any page has parts: a longer list is not from our pages


@dataclass(frozen=True, slots=True)
class Fragment:
    """The inside of the element whose id is `name`."""

    name: str
    html: SafeString
    mark: str


def fragment(name: str, template: str, context: dict[str, object], *, mark: str = "") -> Fragment:
    """Render a part; its mark is a hash of what it shows unless the caller knows better."""
    html = render_to_string(f"web/parts/{template}.html", context)
    return Fragment(name, html, mark or hashlib.sha256(html.encode()).hexdigest()[:MARK_CHARS])


def answer_poll(request: HttpRequest, parts: Iterable[Fragment]) -> HttpResponse:
    """Only the parts whose mark the page does not have yet, and what there is to say."""
    marks = request.POST if request.method == "POST" else request.GET
    seen = set(marks.getlist("seen")[:MARKS_MAX])
    changed = [part for part in parts if f"{part.name}:{part.mark}" not in seen]
    notices = len(get_messages(request)) > 0
    if not changed and not notices:
        return HttpResponse(status=204)
    return render(request, "web/parts/changed.html", {"changed": changed, "notices": notices})
