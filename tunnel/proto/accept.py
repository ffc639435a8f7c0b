"""Whether a client would rather have JSON than a page, or takes a page at all (RFC 9110 12.5.1, in part)."""

from __future__ import annotations

from functools import lru_cache

_JSON = ("application/json", "application/problem+json")
_HTML = ("text/html", "application/xhtml+xml")


@lru_cache(maxsize=512)
def prefers_json(accept: bytes) -> bool:
    """True if JSON is named and at least as welcome as HTML. A bare */* says nothing, and gets the page."""
    json, html = _welcome(accept)
    return json > 0 and json >= html


@lru_cache(maxsize=512)
def takes_html(accept: bytes) -> bool:
    """True if HTML is named, as browsers do when somebody opens an address. A bare */* is any program's."""
    json, html = _welcome(accept)
    return html > json


def _welcome(accept: bytes) -> tuple[float, float]:
    json, html = 0.0, 0.0
    for part in accept.decode("latin-1").split(","):
        media, *parameters = part.split(";")
        name = media.strip().lower()
        if name in _JSON or (name.startswith("application/") and name.endswith("+json")):
            json = max(json, _quality(parameters))
        elif name in _HTML:
            html = max(html, _quality(parameters))
    return json, html


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
