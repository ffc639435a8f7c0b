"""What the edge says in its own name: pages for people, JSON for programs, one line of text for broken requests.

Nothing of the request is shown but the hostname the grammar let through, escaped all the same. Nothing is ever cached.
"""

from __future__ import annotations

import html
import json
import string
from dataclasses import dataclass
from pathlib import Path

from tunnel.wire import Code, Refused

TEMPLATES = Path(__file__).parents[2] / "templates" / "edge"
PAGES = (404, 502, 503, 504)
WAKING_TEMPLATE = "waking.html"
RETRY_AFTER_S = 5  # Retry-After of 503 and 504

# Refusals of a stream, as what they are to a visitor.
STATUSES = {
    Code.MACHINE_UNKNOWN: 503,  # the route is newer or older than what the host knows: it settles by itself
    Code.MACHINE_ASLEEP: 503,
    Code.MACHINE_FAILED: 502,
    Code.WAKE_TIMEOUT: 503,
    Code.WAKE_FAILED: 502,
    Code.WAKE_QUEUE_FULL: 503,
    Code.APP_REFUSED: 502,
    Code.HOST_BUSY: 503,
    Code.TUNNEL_NO_HOST: 503,
    Code.TUNNEL_TIMEOUT: 503,  # the app has seen nothing of the request yet
    Code.TUNNEL_BROKEN: 502,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, as a visitor is told."""

    status: int
    code: str
    message: str
    phase: str = ""
    plain: bool = False  # one line of text instead of a page


def status_of(code: str) -> int:
    """The HTTP status for a refused stream. Codes of a newer host are the backend's trouble."""
    return {str(known): status for known, status in STATUSES.items()}.get(code, 502)


def problem_of(refused: Refused, leaves_asleep: str) -> Problem:
    """A refused stream, as its visitor is told; `leaves_asleep` says why the request was not to wake the machine."""
    if leaves_asleep and refused.code == Code.MACHINE_ASLEEP:
        return Problem(503, refused.code, leaves_asleep, "wake-policy", plain=True)
    return Problem(status_of(refused.code), refused.code, refused.message, refused.phase)


class Pages:
    """The edge's templates, read once."""

    def __init__(self, folder: Path = TEMPLATES) -> None:
        self._templates = {
            status: string.Template((folder / f"{status}.html").read_text(encoding="utf-8")) for status in PAGES
        }
        self._waking = string.Template((folder / WAKING_TEMPLATE).read_text(encoding="utf-8"))

    def waking(self, *, hostname: str, refresh_s: int, usual_s: float | None) -> tuple[list[tuple[str, str]], bytes]:
        """The waiting page: header fields and body. It is loaded again after so many seconds."""
        fields = [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Cache-Control", "no-store"),
            ("X-Robots-Tag", "noindex"),
            ("Retry-After", str(refresh_s)),
        ]
        page = self._waking.substitute(hostname=html.escape(hostname), refresh=refresh_s, usual=_usually(usual_s))
        return fields, page.encode()

    def answer(self, problem: Problem, *, hostname: str, as_json: bool) -> tuple[list[tuple[str, str]], bytes]:
        """Header fields and body."""
        fields = [("Cache-Control", "no-store"), ("X-Burrow-Error", problem.code)]
        if problem.status in (503, 504):
            fields.append(("Retry-After", str(RETRY_AFTER_S)))
        if as_json:
            error = {"code": problem.code, "phase": problem.phase, "message": problem.message}
            body = json.dumps({"error": error}) + "\n"
            return [("Content-Type", "application/json"), *fields], body.encode()
        template = self._templates.get(problem.status)
        if template is None or problem.plain:
            body = f"{problem.status}: {problem.message} ({problem.code})\n"
            return [("Content-Type", "text/plain; charset=utf-8"), *fields], body.encode()
        body = template.substitute(
            message=html.escape(problem.message),
            code=html.escape(problem.code),
            phase=html.escape(problem.phase or "-"),
            hostname=html.escape(hostname),
        )
        return [("Content-Type", "text/html; charset=utf-8"), *fields], body.encode()


def _usually(seconds: float | None) -> str:
    if seconds is None:
        return "That usually takes a few seconds."
    if seconds < 1.5:
        return "Last time that took about a second."
    return f"Last time that took about {seconds:.0f} seconds."
