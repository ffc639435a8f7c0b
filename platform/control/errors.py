"""The two kinds of expected failure. `UserError` is shown to whoever asked; `RetryLater` is tried again by whoever
sent the task.

Everything else is a bug and propagates. Codes are stable (`app:name_taken`); messages are sentences for people and
may change.
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What sort of refusal it is; the API turns it into a status."""

    INVALID = "invalid"
    CONFLICT = "conflict"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"


class UserError(Exception):
    """Something the caller asked for is refused, with a reason they can act on."""

    def __init__(self, code: str, message: str, kind: Kind = Kind.INVALID) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.kind = kind


class RetryLater(Exception):  # noqa: N818 - reads as what to do
    """Nothing is wrong with the work; the other side cannot be reached or is busy."""
