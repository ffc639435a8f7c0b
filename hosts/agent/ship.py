"""Ships the journal to control in seq order, forgetting an event only when control says it is stored for good.

Nothing waits for this loop: control may be down for days. A shipment that is refused is as good as one that did not
arrive; both are tried again with a growing, jittered pause.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import httpx
import structlog

from hosts.agent.clock import Clock, backoff_s
from hosts.agent.journal import Journal, JournalError
from hosts.wire.codec import WireError, decode, encode
from hosts.wire.events import Event, EventAck, EventBatch

log = structlog.get_logger(__name__)

POST_TIMEOUT_S = 15.0  # one shipment of the journal to control
RETRY_FIRST_S = 0.5  # doubled each time, with jitter
RETRY_CAP_S = 30.0  # and no longer than this
MAX_ANSWER_BYTES = 64 * 1024  # of control's answer


class ShipError(Exception):
    """Control did not take the batch; the text says why."""


class Post(Protocol):
    """Delivers one batch and returns what control acknowledged, or raises ShipError."""

    async def __call__(self, batch: EventBatch) -> EventAck: ...


class ControlEvents:
    """`Post` over HTTP (hosts/wire/SPEC.md, section 2)."""

    def __init__(self, control_url: str, host_id: str, token: str) -> None:
        self._url = f"{control_url}/internal/v1/hosts/{host_id}/events"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        # trust_env off: a proxy variable meant for builds must not see the host's token
        self._client = httpx.AsyncClient(timeout=POST_TIMEOUT_S, trust_env=False)

    async def __call__(self, batch: EventBatch) -> EventAck:
        try:
            answer = await self._client.post(self._url, content=encode(batch), headers=self._headers)
        except httpx.HTTPError as e:
            raise ShipError(f"{type(e).__name__}: {e}") from None
        if answer.status_code != httpx.codes.OK or len(answer.content) > MAX_ANSWER_BYTES:
            raise ShipError(f"control answered {answer.status_code}")
        try:
            return decode(EventAck, answer.content)
        except WireError as e:
            raise ShipError(f"control's answer: {e}") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class Shipper:
    """The shipping loop of one journal."""

    def __init__(self, journal: Journal, post: Post, *, host_id: str, clock: Clock) -> None:
        self._journal = journal
        self._post = post
        self._host_id = host_id
        self._clock = clock

    async def run(self) -> None:
        """Ship for ever."""
        failures = 0
        while True:
            await self._journal.grew.wait()
            try:
                await self.ship_once()
            except (ShipError, JournalError, TimeoutError) as e:
                failures += 1
                if failures == 1 or failures % 100 == 0:
                    log.warning("ship.failed", error=str(e), failures=failures, unshipped=self._journal.unshipped)
                await self._clock.sleep(
                    self._clock.jitter(backoff_s(failures, first_s=RETRY_FIRST_S, cap_s=RETRY_CAP_S))
                )
            else:
                if failures:
                    log.info("ship.recovered", failures=failures)
                failures = 0

    async def ship_once(self) -> None:
        """Ship the oldest batch, if there is one."""
        events: tuple[Event, ...] = await self._journal.batch()
        if not events:
            return
        async with asyncio.timeout(POST_TIMEOUT_S * 2):
            ack = await self._post(EventBatch(self._host_id, self._journal.journal_id, events))
        if ack.acked_seq < events[0].seq:
            raise ShipError(f"control acknowledged {ack.acked_seq} of {events[0].seq}..{events[-1].seq}")
        await self._journal.acknowledge(min(ack.acked_seq, events[-1].seq))
