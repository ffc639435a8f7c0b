"""`/.well-known/burrow/status` of every preview host: the state of its machine, from the edge itself.

Asking wakes nothing and is no activity. The host is asked at most once a second per machine, however many want to know.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from tunnel.edge.pages import RETRY_AFTER_S, Problem
from tunnel.proto.forward import own_response
from tunnel.proto.request import RequestHead
from tunnel.tasks import spawn
from tunnel.wire import Code, Open, Refused, Route, ToMachine

if TYPE_CHECKING:
    from tunnel.edge.core import Core
    from tunnel.edge.listener import ClientConnection
    from tunnel.edge.streams import Streams

PATH = b"/.well-known/burrow/status"
FRESH_S = 1.0  # a machine's state is asked again after this
ASK_S = 3.0  # for a machine's state; a host that takes longer has no link just now

RUNNING, ASLEEP, WAKING, FAILED, UNKNOWN = "running", "asleep", "waking", "failed", "unknown"
_OF_MACHINE = {"running": RUNNING, "waking": WAKING, "booting": WAKING, "resuming": WAKING, "failed": FAILED}
_OF_CODE = {
    Code.MACHINE_FAILED.value: FAILED,
    Code.WAKE_QUEUE_FULL.value: WAKING,
    Code.APP_REFUSED.value: RUNNING,
}


def asks_status(head: RequestHead) -> bool:
    """Whether this request is for us."""
    target = head.target
    return target.startswith(PATH) and target[len(PATH) : len(PATH) + 1] in (b"", b"?")


class States:
    """What machines are doing, as their hosts say. An answer is shared, and kept for a second."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._asked: dict[str, asyncio.Task[str]] = {}

    async def of(self, route: Route) -> str:
        """The state of the route's machine; `unknown` if its host does not say."""
        asked = self._asked.get(route.machine)
        if asked is None:
            asked = self._asked[route.machine] = spawn(self._ask(route), name=f"state-{route.machine}")
            asked.add_done_callback(lambda _: self._forget_soon(route.machine))
        return await asyncio.shield(asked)

    def forget(self, machine: str) -> None:
        """Ask again next time: it has just changed."""
        self._asked.pop(machine, None)

    def _forget_soon(self, machine: str) -> None:
        asyncio.get_running_loop().call_later(FRESH_S, self._asked.pop, machine, None)

    async def _ask(self, route: Route) -> str:
        probe = Open(ToMachine(route.machine, may_wake=False, quiet=True, probe=True))
        try:
            async with asyncio.timeout(ASK_S):
                pipe, _ = await self._streams.open(route.host, probe)
        except TimeoutError:
            return UNKNOWN
        except Refused as e:
            if e.code == Code.MACHINE_STATE:
                return _OF_MACHINE.get(e.phase, ASLEEP)
            if e.code == Code.MACHINE_ASLEEP:  # a host from before there were probes
                return ASLEEP
            return _OF_CODE.get(e.code, UNKNOWN)
        pipe.reset()  # such a host again: its machine runs
        return RUNNING


class StatusAnswer:
    """One request for the status; in the listener's eyes an exchange."""

    wants_data = False  # a body is read off after the answer, as of any request that needed none
    waits_since = 0.0

    def __init__(self, core: Core, conn: ClientConnection, head: RequestHead, route: Route) -> None:
        self._core = core
        self._conn = conn
        self._head = head
        self._route = route
        self._id = core.next_id()
        self._started = core.time()
        self._asking: asyncio.Task[None] | None = None

    def start(self, rest: bytes) -> None:
        """Begin. `rest` came together with the head."""
        if rest:
            self._conn.read_ahead(rest)
        if self._head.method in (b"GET", b"HEAD"):
            self._asking = spawn(self._answer(), name=f"request-{self._id}")
        else:
            self.fail(Problem(405, "request:method", "The status is read with GET."))

    async def _answer(self) -> None:
        state = await self._core.states.of(self._route)
        self._asking = None
        body = json.dumps({"app": self._route.app, "state": state}) + "\n"
        fields = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        status = 200
        if state == UNKNOWN:
            status = 503
            fields.append(("Retry-After", str(RETRY_AFTER_S)))
        close = self._closes
        to_head = self._head.method == b"HEAD"
        self._conn.transport.write(own_response(status, fields, body.encode(), to_head=to_head, close=close))
        self._over(status, "edge:status")
        self._conn.over(keep=not close, body_unread=self._head.fields.has_body)

    @property
    def _closes(self) -> bool:
        return not self._head.keeps_alive or self._head.fields.has_body or self._core.draining

    def fail(self, problem: Problem) -> None:
        """Answer with a refusal."""
        self._conn.answer(problem, self._head, close=True)
        self._over(problem.status, problem.code)
        self._conn.over(keep=False, body_unread=self._head.fields.has_body)

    def _over(self, status: int, code: str) -> None:
        total_s = self._core.time() - self._started
        self._core.access.add(self._id, self._conn.client, self._head, self._route, status, code, total_s=total_s)

    def client_data(self, data: bytes) -> None:
        """Nothing of a body is wanted."""

    def client_eof(self) -> bool:
        """The answer is still worth writing."""
        return True

    def client_gone(self) -> None:
        """The client's connection is closed."""
        if self._asking is not None:
            self._asking.cancel()
            self._over(499, "client:gone")

    def client_full(self, *, full: bool) -> None:
        """The answer is one small write."""
