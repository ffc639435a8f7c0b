"""Every limit and time-out of the dialing side, in one place."""

from __future__ import annotations

CONNECT_TIMEOUT_S = 5.0
HELLO_TIMEOUT_S = 10.0  # from connected to the edge's welcome
PING_EVERY_S = 5.0
SILENCE_LIMIT_S = 15.0  # no message on the link for so long: it is dead
REDIAL_MIN_S = 0.1
REDIAL_MAX_S = 5.0
OPEN_LIMIT_S = 120.0  # a handler's open_machine or open_host; the edge gives up sooner
MAX_IDLE_CONNECTIONS = 256  # per edge: dialed or being dialed, not yet opened
MAX_DATA_CONNECTIONS = 8192  # per edge, idle and open together
DIALS_AT_ONCE = 32  # per edge
DIAL_ATTEMPTS = 3  # of one data connection
GATE_RETRY_S = 0.005  # a gate that opened and closed at once is asked again after this
EARLY_BYTES_LIMIT = 64 * 1024  # held while a stream is being opened
WRITE_HIGH_BYTES = 256 * 1024  # one direction of one stream holds no more than about this and one read
WRITE_LOW_BYTES = 64 * 1024
KEEPALIVE_IDLE_S = 15  # TCP keep-alive: a NAT on the way forgets idle connections, and we must notice
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT = 3
