"""The status that anyone may read of a preview host without waking it."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.tunnel.test_exchange import GET, read_answer
from tests.tunnel.world import World

STATUS = "/.well-known/burrow/status"


def body_of(answer: bytes) -> object:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("running", "running"),
        ("paused", "asleep"),
        ("suspended", "asleep"),
        ("stopped", "asleep"),
        ("booting", "waking"),
        ("waking", "waking"),
        ("failed", "failed"),
        ("something new", "asleep"),
    ],
)
async def test_the_status_says_what_the_machine_does(tunnel: World, state: str, shown: str) -> None:
    tunnel.machine.state = state
    answer = await tunnel.get(STATUS)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Content-Type: application/json\r\n" in answer
    assert b"Cache-Control: no-store\r\n" in answer
    assert body_of(answer) == {"app": "blog", "state": shown}


async def test_the_status_wakes_nothing_is_no_activity_and_asks_the_host_once(tunnel: World) -> None:
    tunnel.machine.awake = False
    answers = await asyncio.gather(*(tunnel.get(f"{STATUS}?{i}") for i in range(20)))
    assert {json.dumps(body_of(a)) for a in answers} == {'{"app": "blog", "state": "asleep"}'}
    assert (tunnel.machine.wakes, tunnel.agent.probes) == (0, 1)
    assert (tunnel.agent.activities, tunnel.agent.opens, tunnel.backend.requests) == ([], [], [])


async def test_the_status_of_a_host_that_is_away_is_unknown(tunnel: World) -> None:
    await tunnel.stop_dialer()
    answer = await tunnel.get(STATUS)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 5\r\n" in answer
    assert body_of(answer) == {"app": "blog", "state": "unknown"}


async def test_the_status_keeps_the_connection_and_is_only_read(tunnel: World) -> None:
    reader, writer = await tunnel.open()
    for path in (STATUS.encode(), b"/", STATUS.encode()):
        writer.write(GET % path)
        assert (await read_answer(reader))[0].startswith(b"HTTP/1.1 200 ")
    writer.close()
    head = await tunnel.get(STATUS, method="HEAD")
    assert head.endswith(b"\r\n\r\n")
    assert (await tunnel.get(STATUS, method="POST")).startswith(b"HTTP/1.1 405 ")
    assert (await tunnel.get(STATUS + "/x")).endswith(b"hello")
    assert (await tunnel.get(STATUS, host="none.localhost")).startswith(b"HTTP/1.1 404 ")
    assert len(tunnel.backend.requests) == 2
