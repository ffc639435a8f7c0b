"""Every limit and time-out of the edge, in one place. Those of `Limits` can be set by the operator.

The comments are the words of the table in README and in `--help` (tunnel/dial/table.py).
"""

from __future__ import annotations

from dataclasses import dataclass

# Clients
HALF_CLOSED_S = 10.0  # a client that said it will send no more gets its answer for so long; then it is taken for gone
CLIENT_KEEPALIVE_IDLE_S = 60  # TCP keep-alive: a client that vanished is noticed within two minutes
CLIENT_KEEPALIVE_INTERVAL_S = 15  # between its probes
CLIENT_KEEPALIVE_COUNT = 4  # of them unanswered
PIPELINE_BYTES = 64 * 1024  # read ahead of the request being served
LINGER_S = 3.0  # reading off a body nobody wants, so that its sender gets to read our answer
LINGER_BYTES = 2 * 1024 * 1024  # and at most so much of it
WRITE_HIGH_BYTES = 256 * 1024  # one direction of one exchange holds no more than about this and one read
WRITE_LOW_BYTES = 64 * 1024  # reading goes on at this

# Backends
MAX_INTERIM_RESPONSES = 32  # 1xx before an answer
REFRESH_SOON_S = 1  # the waiting page comes back after this
REFRESH_LATER_S = 2  # and after this once a wake takes longer
REFRESH_LATER_AFTER_S = 4.0  # that is, than this
AWAKE_FOR_PAGE_S = 5.0  # a machine woken for a waiting page is kept awake so long, for the page to come back
WAKE_FAILURE_SHOWN_S = 10.0  # how long the waiting page may take to come back and show why the wake failed
MAX_REMEMBERED_WAKES = 10_000  # machines of which the edge knows how long their last wake took
CONTINUE_AFTER_S = 0.25  # how long a pipe may take before the edge itself answers Expect: 100-continue
KEPT_IDLE_S = 4.0  # a pipe without a request; most app servers keep theirs longer (node 5 s)
KEPT_PER_MACHINE = 256  # pipes kept for the next request
MAX_TUNNEL_HALF_CLOSED_S = 60.0  # an upgraded connection of which one side has ended

# Hosts
HELLO_DEADLINE_S = 10.0  # a dialing host's first line
PING_EVERY_S = 5.0  # on each link
SILENCE_LIMIT_S = 15.0  # no message on a link for so long: it is dead
IDLE_CONNECTIONS = 16  # data connections kept ready, per host
NEED_EXPIRES_S = 3.0  # connections asked for and not dialed by then are asked for again
OPEN_ATTEMPTS = 3  # a data connection may die between OPEN and OPENED; nothing was sent on it yet
HOST_AWAY_S = 15.0  # requests wait so long for a host whose link was lost, or for any host after a start of the edge
ACTIVITY_LINGER_S = 0.01  # "nothing in flight" is said when it held for so long
ACTIVITY_EVERY_S = 1.0  # hosts are told how many requests are in flight

# Control
CONTROL_HELLO_S = 10.0  # control's first line
CONTROL_TABLE_S = 60.0  # a whole route table
CONTROL_CONNECTIONS = 512  # of control at a time

MIB = 1024 * 1024
SWEEP_EVERY_S = 1.0  # how coarse the deadlines above are


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator may set."""

    wake_timeout_s: float = 60.0  # from a request to its open stream
    max_waiters: int = 512  # requests that wait for streams to one machine
    max_waiters_in_all: int = 4096  # and to all of them; below the data connections a host allows
    waiting_mib: int = 32  # of bodies held for the waiters of one machine
    waiting_mib_in_all: int = 256  # and of all of them
    max_connections: int = 20_000  # of clients
    head_deadline_s: float = 10.0  # from the first byte of a request to the end of its head
    client_idle_s: float = 75.0  # a kept connection without a request
    body_silence_s: float = 120.0  # no byte of a body that is wanted
    write_stall_s: float = 120.0  # a client that takes nothing of its answer
    response_head_s: float = 900.0  # from the request to the answer's head
    drain_s: float = 30.0  # what is in flight at SIGTERM may take so long
