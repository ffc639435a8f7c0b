"""Every limit and time-out of the dialing side, in one place."""

from __future__ import annotations

CONNECT_TIMEOUT_S = 5.0  # to an edge
HELLO_TIMEOUT_S = 10.0  # from connected to the edge's welcome
PING_EVERY_S = 5.0  # on each link
SILENCE_LIMIT_S = 15.0  # no message on the link for so long: it is dead
REDIAL_MIN_S = 0.1  # after a link was lost; doubled each time, with jitter
REDIAL_MAX_S = 5.0  # and no longer than this
OPEN_LIMIT_S = 620.0  # a stream being opened; edges give up sooner, at their BURROW_EDGE_WAKE_TIMEOUT_S
MAX_IDLE_CONNECTIONS = 256  # per edge: dialed or being dialed, not yet opened
MAX_DATA_CONNECTIONS = 8192  # per edge, idle and open together
DIALS_AT_ONCE = 32  # per edge
DIAL_ATTEMPTS = 3  # of one data connection
GATE_RETRY_S = 0.005  # a gate that opened and closed at once is asked again after this
EARLY_BYTES_LIMIT = 64 * 1024  # held while a stream is being opened
WRITE_HIGH_BYTES = 256 * 1024  # one direction of one stream holds no more than about this and one read
WRITE_LOW_BYTES = 64 * 1024  # reading goes on at this
KEEPALIVE_IDLE_S = 15  # TCP keep-alive: a NAT on the way forgets idle connections, and we must notice
KEEPALIVE_INTERVAL_S = 5  # between its probes
KEEPALIVE_COUNT = 3  # of them unanswered
