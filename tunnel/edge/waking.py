"""The waiting page: what a browser gets, at once, from a sleeping app whose route says so, while its machine wakes.

It comes back by itself and then gets the app. Only somebody's navigation gets it; what a program asks for is held, and
so is everything when the machine runs or its host does not say. The page is a 503: caches and crawlers must not take it
for the app, and a program that asked by mistake must not take it for an answer.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from tunnel.edge.exchange import CLIENT_GONE, Exchange
from tunnel.edge.limits import REFRESH_LATER_AFTER_S, REFRESH_LATER_S, REFRESH_SOON_S
from tunnel.edge.pages import Problem, problem_of
from tunnel.edge.status import ASLEEP, WAKING
from tunnel.edge.wake import leaves_asleep
from tunnel.proto.accept import takes_html
from tunnel.proto.forward import own_response
from tunnel.proto.request import RequestHead
from tunnel.tasks import spawn
from tunnel.wire import Route

if TYPE_CHECKING:
    from tunnel.edge.core import Core
    from tunnel.edge.listener import ClientConnection

CODE = "edge:waking"
_FETCH_MODE = re.compile(rb"(?i)(?:\A|\n)sec-fetch-mode: *([a-z-]*)")


def gets_page(route: Route, head: RequestHead) -> bool:
    """Whether this is a navigation for which a waiting page is shown, should the machine sleep."""
    fields = head.fields
    if not route.waiting_page or not route.may_wake or head.method != b"GET":
        return False
    if fields.upgrade or fields.has_body or not takes_html(fields.accept):
        return False
    mode = _FETCH_MODE.search(fields.lines)  # a script that asks for HTML says so here, in every browser of today
    return (mode is None or mode[1].lower() == b"navigate") and not leaves_asleep(route, head)


class WaitingPage:
    """One navigation until it is known whether its machine sleeps; in the listener's eyes an exchange."""

    wants_data = False  # it has no body
    waits_since = 0.0

    def __init__(self, core: Core, conn: ClientConnection, head: RequestHead, route: Route, forwarding: bytes) -> None:
        self._core = core
        self._conn = conn
        self._head = head
        self._route = route
        self._forwarding = forwarding
        self._id = core.next_id()
        self._started = core.time()
        self._asking: asyncio.Task[None] | None = None

    def start(self, rest: bytes) -> None:
        """Begin. `rest` came together with the head."""
        if rest:
            self._conn.read_ahead(rest)
        failure = self._core.wakes.take_failure(self._route.machine)
        if failure is not None:
            self.fail(problem_of(failure, ""))
        elif self._core.wakes.age(self._route.machine) is not None:
            self._show()
        else:
            self._asking = spawn(self._ask(), name=f"request-{self._id}")

    async def _ask(self) -> None:
        state = await self._core.states.of(self._route)
        self._asking = None
        if state in (ASLEEP, WAKING):
            self._core.wakes.begin(self._route, self._id)
            self._show()
        else:
            self._conn.go_on_with(Exchange(self._core, self._conn, self._head, self._route, self._forwarding))

    def _show(self) -> None:
        wakes, machine = self._core.wakes, self._route.machine
        late = (wakes.age(machine) or 0.0) > REFRESH_LATER_AFTER_S
        fields, body = self._core.pages.waking(
            hostname=self._head.fields.authority.hostname,
            refresh_s=REFRESH_LATER_S if late else REFRESH_SOON_S,
            usual_s=wakes.usual(machine),
        )
        close = not self._head.keeps_alive or self._core.draining
        self._conn.transport.write(own_response(503, fields, body, to_head=False, close=close))
        self._over(503, CODE)
        self._conn.over(keep=not close, body_unread=False)

    def fail(self, problem: Problem) -> None:
        """Answer with a refusal."""
        close = not self._head.keeps_alive or self._core.draining
        self._conn.answer(problem, self._head, close=close)
        self._over(problem.status, problem.code)
        self._conn.over(keep=not close, body_unread=False)

    def _over(self, status: int, code: str) -> None:
        total_s = self._core.time() - self._started
        self._core.access.add(self._id, self._conn.client, self._head, self._route, status, code, total_s=total_s)

    def client_data(self, data: bytes) -> None:
        """There is no body."""

    def client_eof(self) -> bool:
        """The answer is still worth writing."""
        return True

    def client_gone(self) -> None:
        """The client's connection is closed."""
        if self._asking is not None:
            self._asking.cancel()
            self._over(CLIENT_GONE, "client:gone")

    def client_full(self, *, full: bool) -> None:
        """The answer is one small write."""
