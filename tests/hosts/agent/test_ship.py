"""Shipping: in order, again and again until control says it has them, and never in anyone's way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hosts.agent.durable import Scribe
from hosts.agent.journal import Journal
from hosts.agent.ship import ControlEvents, ShipError, Shipper
from hosts.wire.codec import decode, encode
from hosts.wire.events import Event, EventAck, EventBatch, EventKind
from hosts.wire.spec import MachineId
from tests.fakes.clock import FakeClock


def event(n: int) -> Event:
    return Event(f"{n:032x}", 0, EventKind.STATE, MachineId("0" * 32), n)


class Control:
    """Remembers what it was sent; may refuse."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.down = False

    async def __call__(self, batch: EventBatch) -> EventAck:
        if self.down:
            raise ShipError("connection refused")
        self.batches.append(batch)
        return EventAck(batch.events[-1].seq)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    scribe = Scribe()
    journal = Journal(tmp_path / "journal", scribe, new_journal_id="j1")
    yield journal
    await journal.close()
    scribe.close()


async def test_a_batch_carries_at_most_500_events_in_order(journal: Journal) -> None:
    control = Control()
    shipper = Shipper(journal, control, host_id="host-0", clock=FakeClock())
    await journal.append(*(event(n) for n in range(501)))
    await shipper.ship_once()
    await shipper.ship_once()
    await shipper.ship_once()
    assert [len(b.events) for b in control.batches] == [500, 1]
    assert [e.seq for b in control.batches for e in b.events] == list(range(1, 502))
    assert control.batches[0].journal_id == "j1"


async def test_events_wait_out_a_control_that_is_down_and_arrive_once_it_is_back(journal: Journal) -> None:
    clock, control = FakeClock(), Control()
    control.down = True
    running = asyncio.get_running_loop().create_task(Shipper(journal, control, host_id="host-0", clock=clock).run())
    await journal.append(event(1))
    for _ in range(100):  # hours, as the clock sees it
        await clock.advance(60)
        await asyncio.sleep(0.001)
    assert control.batches == []
    control.down = False
    for _ in range(200):
        await clock.advance(1)
        await asyncio.sleep(0.005)
        if not journal.unshipped:
            break
    assert [e.seq for b in control.batches for e in b.events] == [1]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_an_acknowledgement_of_less_than_was_sent_ships_the_rest_again(journal: Journal) -> None:
    seen: list[list[int]] = []

    async def stingy(batch: EventBatch) -> EventAck:
        seen.append([e.seq for e in batch.events])
        return EventAck(batch.events[0].seq)

    shipper = Shipper(journal, stingy, host_id="host-0", clock=FakeClock())
    await journal.append(event(1), event(2), event(3))
    await shipper.ship_once()
    await shipper.ship_once()
    assert seen == [[1, 2, 3], [2, 3]]


async def test_an_acknowledgement_of_nothing_is_a_failure(journal: Journal) -> None:
    async def deaf(batch: EventBatch) -> EventAck:
        return EventAck(0)

    await journal.append(event(1))
    with pytest.raises(ShipError, match=r"acknowledged 0 of 1\.\.1"):
        await Shipper(journal, deaf, host_id="host-0", clock=FakeClock()).ship_once()
    assert journal.unshipped == 1


async def _control_server(answer: bytes, requests: list[bytes]) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        requests.append(head + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def _http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def test_it_posts_to_the_host_of_its_name_with_its_token() -> None:
    requests: list[bytes] = []
    server = await _control_server(_http("200 OK", encode(EventAck(1))), requests)
    port = server.sockets[0].getsockname()[1]
    post = ControlEvents(f"http://127.0.0.1:{port}", "host-0", "the-token")
    batch = EventBatch("host-0", "j", (event(1),))
    assert await post(batch) == EventAck(1)
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /internal/v1/hosts/host-0/events HTTP/1.1\r\n")
    assert b"Authorization: Bearer the-token" in head
    assert decode(EventBatch, body) == batch
    await post.close()
    server.close()


@pytest.mark.parametrize(
    "answer",
    [
        _http("500 Oops", b"{}"),
        _http("200 OK", b"<html>"),
        _http("401 No", b"{}"),
        _http("302 Found", b""),
        b"junk\r\n\r\n",
    ],
)
async def test_any_other_answer_is_a_failure_to_ship(answer: bytes) -> None:
    server = await _control_server(answer, [])
    post = ControlEvents(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "host-0", "t")
    with pytest.raises(ShipError):
        await post(EventBatch("host-0", "j", (event(1),)))
    await post.close()
    server.close()


async def test_a_control_that_is_not_there_is_a_failure_to_ship() -> None:
    post = ControlEvents("http://127.0.0.1:9", "host-0", "t")
    with pytest.raises(ShipError):
        await post(EventBatch("host-0", "j", (event(1),)))
    await post.close()
