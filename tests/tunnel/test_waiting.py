"""The waiting room: each bound refuses at its number, for one machine and for all, and what leaves makes room again."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import cast

import pytest

from tests.tunnel.test_exchange import GET, POST, read_answer
from tests.tunnel.world import Machine, World, until, world
from tunnel.edge.limits import MIB, Limits
from tunnel.edge.pipes import reset
from tunnel.edge.waiting import Held, WaitingRoom
from tunnel.wire import Code, Refused, Route

BLOG, SHOP = Route("blog.localhost", "m1", "h1", "blog"), Route("shop.localhost", "m2", "h1", "shop")


async def two_apps(tunnel: World, *, wake_s: float) -> None:
    """A second app, and both asleep."""
    tunnel.agent.machines["m2"] = Machine(tunnel.backend.port, awake=False, wake_s=wake_s)
    tunnel.machine.awake = False
    tunnel.machine.wake_s = wake_s
    await tunnel.publish(2, BLOG, SHOP)


def test_a_machine_has_so_many_places_and_one_left_is_free_again() -> None:
    room = WaitingRoom(Limits(max_waiters=2, max_waiters_in_all=10))
    with room.place("m1"):
        with room.place("m1"), pytest.raises(Refused) as refused, room.place("m1"):
            pass
        assert refused.value.code == Code.WAKE_QUEUE_FULL
        assert refused.value.phase == "queue"
        with room.place("m1"), room.place("m2"):
            assert room.waiters == 3
    assert room.waiters == 0


def test_all_machines_together_have_so_many_places() -> None:
    room = WaitingRoom(Limits(max_waiters=2, max_waiters_in_all=3))
    with contextlib.ExitStack() as stack:
        for machine in ("m1", "m1", "m2"):
            stack.enter_context(room.place(machine))
        with pytest.raises(Refused, match="at this edge"), room.place("m3"):
            pass
    with room.place("m3"):
        assert room.waiters == 1


def test_bytes_are_bounded_per_machine_and_over_all_and_come_back() -> None:
    room = WaitingRoom(Limits(waiting_mib=1, waiting_mib_in_all=2))
    first, second = Held(room, "m1"), Held(room, "m1")
    first.add([b"x" * (MIB - 1)])
    with pytest.raises(Refused, match="for this app"):
        second.add([b"xx"])
    second.add([b"x"])
    Held(room, "m2").add([b"x" * MIB])
    with pytest.raises(Refused, match="at this edge"):
        Held(room, "m3").add([b"x"])
    assert first.take() == [b"x" * (MIB - 1)]
    assert first.take() == []
    Held(room, "m3").add([b"x"])
    assert room.held_bytes == MIB + 2


async def test_an_app_with_too_many_waiters_is_refused_and_another_is_not(tmp_path: Path) -> None:
    async with world(tmp_path, Limits(max_waiters=3, max_waiters_in_all=100, drain_s=1.0)) as tunnel:
        await two_apps(tunnel, wake_s=0.5)
        blog = asyncio.gather(*(tunnel.get("/", "Accept: application/json") for _ in range(20)))
        await asyncio.sleep(0.1)
        assert (await tunnel.get(host="shop.localhost")).endswith(b"hello")
        answers = await blog
        refused = [a for a in answers if b"wake:queue_full" in a]
        assert len(refused) == 17
        for answer in refused:
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 5\r\n" in answer
            assert b'"phase": "queue"' in answer
        assert tunnel.edge.core.streams.room.waiters == 0


async def test_an_edge_with_too_many_waiters_goes_on_serving_apps_that_run(tmp_path: Path) -> None:
    async with world(tmp_path, Limits(max_waiters=4, max_waiters_in_all=4, drain_s=1.0)) as tunnel:
        await two_apps(tunnel, wake_s=0.6)
        tunnel.agent.machines["m2"].awake = True
        reader, writer = await tunnel.open()
        writer.write(GET.replace(b"blog", b"shop") % b"/")  # its pipe is kept
        await read_answer(reader)
        waiting = asyncio.gather(*(tunnel.get() for _ in range(4)))
        await until(lambda: tunnel.edge.core.streams.room.waiters == 4)
        writer.write(GET.replace(b"blog", b"shop") % b"/")
        assert (await read_answer(reader))[1] == b"hello"
        writer.close()
        assert b"wake:queue_full" in await tunnel.get(host="shop.localhost", method="POST")
        assert all(a.endswith(b"hello") for a in await waiting)
        assert (await tunnel.get(host="shop.localhost", method="POST")).endswith(b"hello")


async def test_uploads_over_the_bound_are_refused_and_the_others_arrive_whole(tmp_path: Path) -> None:
    async with world(tmp_path, Limits(waiting_mib=1, drain_s=1.0)) as tunnel:
        await two_apps(tunnel, wake_s=1.0)
        room = tunnel.edge.core.streams.room
        size = 900_000
        answers = []

        async def upload(host: bytes) -> None:
            reader, writer = await tunnel.open()
            writer.write((POST % b"/").replace(b"blog", host) + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
            with contextlib.suppress(ConnectionError):  # the refused ones are not read to their end
                await writer.drain()
            answers.append((host, (await read_answer(reader))[1]))
            writer.close()

        uploads = [asyncio.get_running_loop().create_task(upload(b"blog")) for _ in range(30)]
        await until(lambda: len(answers) > 0)
        assert room.held_bytes <= MIB
        await upload(b"shop")
        await asyncio.gather(*uploads)
        served = [host for host, body in answers if body == b"hello"]
        assert 0 < served.count(b"blog") < 30
        assert served.count(b"shop") == 1
        assert {len(seen.body) for seen in tunnel.backend.requests} == {size}
        assert (room.held_bytes, room.waiters) == (0, 0)


async def test_whoever_gives_up_while_waiting_leaves_nothing_behind(tunnel: World) -> None:
    await two_apps(tunnel, wake_s=5.0)
    room = tunnel.edge.core.streams.room
    _, writer = await tunnel.open()
    writer.write(POST % b"/" + b"Content-Length: 5\r\n\r\nabcde")
    await until(lambda: room.held_bytes == 5 and room.waiters == 1)
    reset(cast("asyncio.Transport", writer.transport))
    await until(lambda: (room.held_bytes, room.waiters) == (0, 0))


async def test_the_time_bound_names_the_phase_it_ended_in(tmp_path: Path) -> None:
    async with world(tmp_path, Limits(wake_timeout_s=0.3, drain_s=1.0)) as tunnel:
        await two_apps(tunnel, wake_s=30.0)
        tunnel.agent.machines["m2"].awake = True
        slow, quick = await asyncio.gather(
            tunnel.get("/", "Accept: application/json"), tunnel.get(host="shop.localhost")
        )
        assert b'"code": "wake:timeout", "phase": "wake"' in slow
        assert quick.endswith(b"hello")
        await tunnel.publish(3, Route("blog.localhost", "m1", "h9", "blog"))
        away = await tunnel.get("/", "Accept: application/json")
        assert away.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 5\r\n" in away
        assert b'"code": "tunnel:timeout", "phase": "connect"' in away
