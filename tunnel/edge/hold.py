"""Why nothing is read from a client. Reasons add up; reading goes on when none is left."""

from __future__ import annotations


class Hold:
    """Bits of an int, for IntFlag costs microseconds per request."""

    OPENING = 1  # its body waits for a pipe
    PIPE_FULL = 2
    AHEAD = 4  # it sent more requests than we keep
    ANY = 7
