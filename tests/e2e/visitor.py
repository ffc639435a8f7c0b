"""A visitor of a preview: plain HTTP through the edge on loopback, whatever the resolver says of *.localhost."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

PATIENCE_S = 90


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: str
    headers: dict[str, str]


def ask(
    url: str,
    path: str = "/",
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request on a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 80, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body=body, headers={"Host": parts.netloc, **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        return Answer(response.status, text, {k.lower(): v for k, v in response.getheaders()})
    finally:
        connection.close()


def ask_until(url: str, status: int, limit_s: float) -> Answer:
    """Ask again and again until that status comes back; the last answer or error speaks if it never does."""
    deadline = time.monotonic() + limit_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = answer = ask(url)
        except (OSError, http.client.HTTPException) as e:
            last = e
        else:
            if answer.status == status:
                return answer
        time.sleep(0.1)
    raise AssertionError(f"{url}: wanted {status} within {limit_s} s, last saw {last!r}")
