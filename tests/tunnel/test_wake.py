"""Requests to sleeping machines: one wake, everybody answered, nothing lost, and a reason where there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.tunnel.backend import Visit
from tests.tunnel.test_exchange import GET, POST, read_answer
from tests.tunnel.world import World, until, world
from tunnel.edge.limits import Limits
from tunnel.wire import Code, Refused, Route


async def test_fifty_requests_to_a_sleeping_machine_cause_one_wake_and_all_are_answered(tunnel: World) -> None:
    tunnel.machine.awake = False
    tunnel.machine.wake_s = 0.3
    answers = await asyncio.gather(*(tunnel.get(f"/{i}") for i in range(50)))
    assert all(a.endswith(b"hello") for a in answers)
    assert tunnel.machine.wakes == 1
    assert len(tunnel.backend.requests) == 50


async def test_activity_is_said_before_the_machine_is_asked_for_and_zero_after(tunnel: World) -> None:
    said_at_open: list[list[tuple[str, int]]] = []
    before = tunnel.agent.open_machine

    async def note(machine: str, *, may_wake: bool, request: str, quiet: bool = False) -> object:
        await asyncio.sleep(0.05)
        said_at_open.append(list(tunnel.agent.activities))
        return await before(machine, may_wake=may_wake, request=request)

    tunnel.agent.open_machine = note  # type: ignore[method-assign, assignment]
    await tunnel.get()
    assert said_at_open == [[("m1", 1)]]
    await until(lambda: tunnel.agent.activities == [("m1", 1), ("m1", 0)])


async def test_back_to_back_requests_say_their_activity_once(tunnel: World) -> None:
    reader, writer = await tunnel.open()
    for _ in range(20):
        writer.write(GET % b"/")
        await read_answer(reader)
    writer.close()
    await until(lambda: tunnel.agent.activities[-1:] == [("m1", 0)])
    assert len(tunnel.agent.activities) < 20


async def test_bytes_on_a_kept_pipe_wait_behind_the_gate_and_wake_the_machine(tunnel: World) -> None:
    reader, writer = await tunnel.open()
    writer.write(GET % b"/")
    await read_answer(reader)
    tunnel.machine.awake = False
    writer.write(GET % b"/2")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()
    assert tunnel.machine.wakes == 1
    assert tunnel.agent.opens == ["m1"]


async def test_an_upload_waits_for_the_wake_outside_the_edges_memory(tunnel: World) -> None:
    tunnel.machine.awake = False
    tunnel.machine.wake_s = 0.6
    size = 32 * 1024 * 1024
    sent = 0
    reader, writer = await tunnel.open()
    writer.write(POST % b"/" + b"Content-Length: %d\r\n\r\n" % size)

    async def upload() -> None:
        nonlocal sent
        while sent < size:
            writer.write(b"x" * 262_144)
            sent += 262_144
            await writer.drain()

    uploading = asyncio.get_running_loop().create_task(upload())
    await asyncio.sleep(0.4)
    assert sent < size // 2
    async with asyncio.timeout(30):
        await uploading
        assert (await read_answer(reader))[1] == b"hello"
    writer.close()
    assert len(tunnel.backend.requests[0].body) == size


async def test_expect_100_is_answered_while_the_machine_wakes(tunnel: World) -> None:
    tunnel.machine.awake = False
    tunnel.machine.wake_s = 1.0
    reader, writer = await tunnel.open()
    writer.write(POST % b"/" + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(0.9):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abcde")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()
    assert tunnel.backend.requests[0].values(b"expect") == []
    assert tunnel.backend.requests[0].body == b"abcde"


async def test_a_route_that_may_not_wake_says_asleep(tunnel: World) -> None:
    await tunnel.publish(2, Route("blog.localhost", "m1", "h1", "blog", may_wake=False))
    assert (await tunnel.get()).endswith(b"hello")
    tunnel.machine.awake = False
    answer = await tunnel.get("/", "Accept: application/json")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"machine:asleep"' in answer
    assert tunnel.machine.wakes == 0


async def test_a_wake_that_fails_is_told_with_its_phase(tunnel: World) -> None:
    tunnel.machine.awake = False
    tunnel.machine.refuses = Refused(Code.WAKE_FAILED, "resume.clock", "The clock could not be set.")
    answer = await tunnel.get()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"X-Burrow-Error: wake:failed\r\n" in answer
    assert b"resume.clock" in answer
    assert b"The clock could not be set." in answer


async def test_a_wake_that_takes_too_long_is_503_with_retry_after(tmp_path: Path) -> None:
    async with world(tmp_path, Limits(wake_timeout_s=0.3, drain_s=1.0)) as tunnel:
        tunnel.machine.awake = False
        tunnel.machine.wake_s = 30.0
        answer = await tunnel.get("/", "Accept: application/json")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 5\r\n" in answer
        assert b'{"code": "wake:timeout", "phase": "wake"' in answer


async def test_waiters_are_bounded(tmp_path: Path) -> None:
    async with world(tmp_path, Limits(max_waiters=3, drain_s=1.0)) as tunnel:
        tunnel.machine.awake = False
        tunnel.machine.wake_s = 0.5
        answers = await asyncio.gather(*(tunnel.get() for _ in range(10)))
        assert sum(a.endswith(b"hello") for a in answers) == 3
        assert sum(b"wake:queue_full" in a and b"Retry-After" in a for a in answers) == 7


async def test_a_client_that_gives_up_does_not_stop_the_wake_of_the_others(tunnel: World) -> None:
    tunnel.machine.awake = False
    tunnel.machine.wake_s = 0.4
    _, writer = await tunnel.open()
    writer.write(GET % b"/")
    await until(lambda: tunnel.machine.wakes == 1)
    writer.transport.abort()
    assert (await tunnel.get()).endswith(b"hello")
    assert tunnel.machine.wakes == 1


async def test_a_machine_that_sleeps_with_a_request_in_flight_loses_nothing(tunnel: World) -> None:
    async def slow(visit: Visit) -> None:
        await visit.read_body()
        tunnel.machine.awake = False
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")

    tunnel.backend.replies[b"/slow"] = slow
    assert (await tunnel.get("/slow")).endswith(b"slow")
    assert (await tunnel.get("/")).endswith(b"hello")
    assert tunnel.machine.wakes == 1


async def test_an_app_that_does_not_listen_is_502(tunnel: World) -> None:
    await tunnel.backend.stop()
    answer = await tunnel.get()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"app:refused" in answer


async def test_a_machine_the_host_does_not_know_is_503(tunnel: World) -> None:
    await tunnel.publish(2, Route("blog.localhost", "m9", "h1", "blog"))
    assert b"machine:unknown" in await tunnel.get()
