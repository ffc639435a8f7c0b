"""The edge's own pages: self-contained, escaped, never cached."""

from __future__ import annotations

import re

import pytest

from tunnel.edge.pages import PAGES, Pages, Problem, status_of
from tunnel.wire import Code


@pytest.mark.parametrize("status", PAGES)
def test_a_page_loads_nothing_and_says_what_and_where(status: int) -> None:
    problem = Problem(status, "wake:failed", "Because <b>so</b>.", "resume.clock")
    fields, body = Pages().answer(problem, hostname="blog.localhost", as_json=False)
    page = body.decode()
    assert ("Cache-Control", "no-store") in fields
    assert not re.search(r"src=|href=|url\(|<script|@import", page)
    assert "$" not in page
    assert "<b>" not in page
    assert "blog.localhost" in page
    assert 'name="viewport"' in page
    assert 'lang="en"' in page


@pytest.mark.parametrize("status", [503, 504])
def test_what_may_pass_says_when_to_try_again(status: int) -> None:
    fields, _ = Pages().answer(Problem(status, "c", "m"), hostname="", as_json=True)
    assert ("Retry-After", "5") in fields


def test_statuses_without_a_page_are_one_line_of_text() -> None:
    fields, body = Pages().answer(Problem(400, "request:line", "Bad."), hostname="", as_json=False)
    assert body == b"400: Bad. (request:line)\n"
    assert fields[0] == ("Content-Type", "text/plain; charset=utf-8")


def test_every_code_of_a_stream_has_a_status_and_strange_ones_are_the_backends() -> None:
    assert status_of(Code.WAKE_TIMEOUT) == 503
    assert status_of("tunnel:timeout") == 503
    assert status_of("news:from_the_future") == 502
