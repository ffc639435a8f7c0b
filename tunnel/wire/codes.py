"""The stable codes a stream or a connection is refused with (SPEC.md, section 2), and the exception that carries one.

Codes are strings on the wire: a newer peer may send one we do not know, and it is passed on as it is.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Why there is no stream."""

    MACHINE_UNKNOWN = "machine:unknown"
    MACHINE_ASLEEP = "machine:asleep"
    MACHINE_STATE = "machine:state"  # the answer to a probe
    MACHINE_FAILED = "machine:failed"
    WAKE_TIMEOUT = "wake:timeout"
    WAKE_FAILED = "wake:failed"
    WAKE_QUEUE_FULL = "wake:queue_full"
    APP_REFUSED = "app:refused"
    HOST_BUSY = "host:busy"
    TUNNEL_NO_HOST = "tunnel:no_host"
    TUNNEL_TIMEOUT = "tunnel:timeout"
    TUNNEL_BROKEN = "tunnel:broken"
    TUNNEL_TOKEN = "tunnel:token"  # noqa: S105 - the name of a code, not a secret
    TUNNEL_SESSION = "tunnel:session"
    TUNNEL_VERSION = "tunnel:version"
    TUNNEL_MALFORMED = "tunnel:malformed"


class Refused(Exception):  # noqa: N818 - it is what happened
    """A stream was refused: stable code, the phase it happened in, one sentence for a person."""

    def __init__(self, code: str, phase: str, message: str) -> None:
        super().__init__(f"{code} ({phase}): {message}" if phase else f"{code}: {message}")
        self.code = str(code)
        self.phase = phase
        self.message = message
