"""Why a message is refused.

The two sides have a class each, because they end differently: a 4xx for the client's mistakes, a 502 for the backend's.
"""

from __future__ import annotations


class RequestRefused(ValueError):  # noqa: N818 - it is what happened
    """The client's message is refused: HTTP status, stable code, one sentence. The connection closes then."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class BadResponse(ValueError):  # noqa: N818 - it is what happened
    """The backend's message cannot be passed on: stable code, one sentence. Both connections close."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class BadBody(ValueError):  # noqa: N818 - it is what happened
    """A body's framing is broken; which side's it was is for the caller to say."""
