"""Who gets JSON, and who a page."""

from __future__ import annotations

import pytest

from tunnel.proto.accept import prefers_json, takes_html


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        (b"", False),
        (b"*/*", False),
        (b"text/html,application/xhtml+xml,*/*;q=0.8", False),
        (b"application/json", True),
        (b"application/json, text/plain, */*", True),
        (b"text/html, application/json", True),
        (b"text/html, application/json;q=0.5", False),
        (b"text/html;q=0.1, application/problem+json", True),
        (b"application/json;q=0", False),
        (b"application/json;q=x", False),
        (b"APPLICATION/JSON", True),
        (b"\xff;;;,,", False),
    ],
)
def test_json_is_for_those_who_ask_for_it(accept: bytes, json: bool) -> None:  # noqa: FBT001
    assert prefers_json(accept) is json


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (b"", False),
        (b"*/*", False),
        (b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        (b"application/json", False),
        (b"application/json, text/html", False),
        (b"text/html;q=0", False),
        (b"TEXT/HTML", True),
        (b"image/avif,image/webp,*/*;q=0.8", False),
    ],
)
def test_only_those_who_name_html_take_it(accept: bytes, html: bool) -> None:  # noqa: FBT001 - a case, not a switch
    assert takes_html(accept) is html
