"""The waiting page: browsers get it at once from a sleeping app that has it switched on, everybody else is held."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.platform.web.browser import Chromium
from tests.tunnel.test_exchange import read_answer
from tests.tunnel.world import World, until
from tunnel.edge.pages import Pages
from tunnel.wire import Code, NoWake, Refused, Route

PAGE = Route("blog.localhost", "m1", "h1", "blog", waiting_page=True)
BROWSER = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def asleep(tunnel: World, route: Route = PAGE, *, wake_s: float = 0.3) -> None:
    await tunnel.publish(2, route)
    tunnel.machine.awake = False
    tunnel.machine.wake_s = wake_s


async def come_back(tunnel: World, path: str = "/") -> bytes:
    """Load the page again as often as it says, like a browser, and answer what came instead of it."""
    async with asyncio.timeout(15):
        while True:
            answer = await tunnel.get(path, BROWSER)
            again = re.search(rb'http-equiv="refresh" content="(\d)"', answer)
            if again is None:
                return answer
            await asyncio.sleep(int(again[1]))


async def test_a_browser_gets_the_page_at_once_and_the_app_when_it_comes_back(tunnel: World) -> None:
    await asleep(tunnel, wake_s=0.8)
    async with asyncio.timeout(0.5):
        answer = await tunnel.get("/a?b=c", BROWSER)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    for line in (
        b"Content-Type: text/html; charset=utf-8",
        b"Cache-Control: no-store",
        b"X-Robots-Tag: noindex",
        b"Retry-After: 1",
    ):
        assert line in head
    assert b'<meta http-equiv="refresh" content="1">' in body
    assert b"blog.localhost" in body
    assert (await come_back(tunnel, "/a?b=c")).endswith(b"hello")
    assert tunnel.machine.wakes == 1
    assert [seen.target for seen in tunnel.backend.requests] == [b"/a?b=c"]


async def test_the_stream_that_woke_it_carries_the_request_that_comes_back(tunnel: World) -> None:
    await asleep(tunnel, wake_s=0.05)
    await tunnel.get("/", BROWSER)
    await until(lambda: tunnel.machine.awake)
    assert (await come_back(tunnel)).endswith(b"hello")
    assert [x for x in tunnel.agent.opens if x == "m1"] == ["m1"]


async def test_many_visitors_share_one_wake_and_each_gets_a_page(tunnel: World) -> None:
    await asleep(tunnel, wake_s=0.5)
    answers = await asyncio.gather(*(tunnel.get(f"/{i}", BROWSER) for i in range(30)))
    assert all(a.startswith(b"HTTP/1.1 503 ") for a in answers)
    assert tunnel.machine.wakes == 1
    assert tunnel.agent.probes == 1
    assert tunnel.edge.core.streams.room.waiters <= 1


@pytest.mark.parametrize(
    ("method", "lines"),
    [
        ("GET", ("Accept: */*",)),
        ("GET", ("Accept: application/json",)),
        ("GET", ()),
        ("HEAD", (BROWSER,)),
        ("DELETE", (BROWSER,)),
        ("GET", (BROWSER, "Sec-Fetch-Mode: cors")),
    ],
)
async def test_programs_are_held(tunnel: World, method: str, lines: tuple[str, ...]) -> None:
    await asleep(tunnel)
    answer = await tunnel.get("/", *lines, method=method)
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_post_of_a_form_is_held_and_arrives_once(tunnel: World) -> None:
    await asleep(tunnel)
    answer = await tunnel.say(
        f"POST / HTTP/1.1\r\nHost: blog.localhost\r\nConnection: close\r\n{BROWSER}\r\n"
        f"Sec-Fetch-Mode: navigate\r\nContent-Length: 5\r\n\r\na=b&c".encode()
    )
    assert answer.endswith(b"hello")
    (seen,) = tunnel.backend.requests
    assert seen.body == b"a=b&c"


async def test_a_websocket_is_held(tunnel: World) -> None:
    await asleep(tunnel)
    _, writer = await tunnel.open()
    writer.write(
        f"GET /ws HTTP/1.1\r\nHost: blog.localhost\r\n{BROWSER}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    await until(lambda: any(seen.target == b"/ws" for seen in tunnel.backend.requests))
    writer.close()


async def test_without_the_setting_a_browser_is_held(tunnel: World) -> None:
    await asleep(tunnel, Route("blog.localhost", "m1", "h1", "blog"))
    assert (await tunnel.get("/", BROWSER)).endswith(b"hello")


async def test_a_running_app_answers_as_usual(tunnel: World) -> None:
    await tunnel.publish(2, PAGE)
    reader, writer = await tunnel.open()
    for _ in range(3):
        writer.write(f"GET / HTTP/1.1\r\nHost: blog.localhost\r\n{BROWSER}\r\n\r\n".encode())
        assert (await read_answer(reader))[1] == b"hello"
    writer.close()


async def test_a_request_behind_the_page_on_the_same_connection_is_answered_in_turn(tunnel: World) -> None:
    await asleep(tunnel, wake_s=0.5)
    reader, writer = await tunnel.open()
    get = f"GET / HTTP/1.1\r\nHost: blog.localhost\r\n{BROWSER}\r\n\r\n".encode()
    writer.write(get + get.replace(BROWSER.encode(), b"Accept: */*"))
    assert (await read_answer(reader))[0].startswith(b"HTTP/1.1 503 ")
    assert (await read_answer(reader))[1] == b"hello"
    writer.close()


async def test_a_host_that_does_not_say_leaves_the_request_held(tunnel: World) -> None:
    await asleep(tunnel)
    tunnel.machine.state = "thinking"  # not a word of ours: a newer host's
    tunnel.agent.machine_state = _unknown  # type: ignore[method-assign]
    assert (await tunnel.get("/", BROWSER)).endswith(b"hello")


def _unknown(machine: str) -> str:
    raise Refused(Code.HOST_BUSY, "find", "ask later")


async def test_a_failed_machine_says_so_instead_of_waiting(tunnel: World) -> None:
    await asleep(tunnel)
    tunnel.machine.state = "failed"
    tunnel.machine.refuses = Refused(Code.MACHINE_FAILED, "boot", "It did not boot.")
    answer = await tunnel.get("/", BROWSER)
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"It did not boot." in answer


async def test_a_wake_that_fails_is_told_by_the_page_once_and_then_tried_again(tunnel: World) -> None:
    await asleep(tunnel)
    tunnel.machine.refuses = Refused(Code.WAKE_FAILED, "resume.clock", "The clock could not be set.")
    answer = await come_back(tunnel)
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"The clock could not be set." in answer
    tunnel.machine.refuses = None
    assert (await come_back(tunnel)).endswith(b"hello")


async def test_the_machine_stays_in_use_until_the_page_has_come_back(tunnel: World) -> None:
    await asleep(tunnel, wake_s=0.05)
    await tunnel.get("/", BROWSER)
    await until(lambda: tunnel.machine.awake)
    await asyncio.sleep(1.0)
    assert tunnel.edge.core.activity.in_flight("m1") == 1
    assert tunnel.agent.activities[0] == ("m1", 1)


async def test_who_does_not_wake_gets_no_page(tunnel: World) -> None:
    await asleep(tunnel, Route("blog.localhost", "m1", "h1", "blog", no_wake=NoWake(robots=True), waiting_page=True))
    answer = await tunnel.get("/", BROWSER, "User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)")
    assert b"machine:asleep" in answer
    assert tunnel.machine.wakes == 0
    await tunnel.publish(3, Route("blog.localhost", "m1", "h1", "blog", may_wake=False, waiting_page=True))
    assert b"machine:asleep" in await tunnel.get("/", BROWSER)
    assert tunnel.machine.wakes == 0


async def test_it_says_how_long_the_last_wake_took(tunnel: World) -> None:
    await asleep(tunnel, wake_s=0.05)
    assert b"usually takes a few seconds" in await tunnel.get("/", BROWSER)
    await until(lambda: tunnel.machine.awake and not tunnel.machine.waking)
    assert (await come_back(tunnel)).endswith(b"hello")
    tunnel.machine.awake = False
    tunnel.edge.core.states.forget("m1")
    assert b"Last time that took about a second." in await tunnel.get("/", BROWSER)


async def test_a_browser_that_leaves_while_the_host_is_asked_is_forgotten(tunnel: World) -> None:
    await asleep(tunnel)
    _, writer = await tunnel.open()
    writer.write(f"GET / HTTP/1.1\r\nHost: blog.localhost\r\n{BROWSER}\r\n\r\n".encode())
    writer.close()
    await until(lambda: not tunnel.edge.core.clients)


def test_the_page_loads_nothing_and_says_what_happens_without_a_script() -> None:
    fields, body = Pages().waking(hostname="a<b>.localhost", refresh_s=2, usual_s=12.4)
    page = body.decode()
    assert not re.search(r"src=|url\(|<script|@import|<b>", page)
    assert re.findall(r'href="([^"]*)"', page) == ["data:,", ""]  # no icon of the sleeping app's, and itself
    assert "$" not in page
    assert '<meta http-equiv="refresh" content="2">' in page
    assert "Last time that took about 12 seconds." in page
    assert 'lang="en"' in page
    assert 'name="viewport"' in page
    assert "prefers-reduced-motion" in page
    assert ("Retry-After", "2") in fields


async def test_a_real_browser_without_scripts_goes_on_to_the_app(tunnel: World) -> None:
    await asleep(tunnel, wake_s=2.5)

    def browse() -> None:
        with Chromium() as page:
            page.screen(1000, 640, script=False)
            page.go(f"http://blog.localhost:{tunnel.port}/")
            assert "The app was asleep and is on its way" in page.text()
            page.until_text("hello")

    await asyncio.to_thread(browse)
    assert tunnel.machine.wakes == 1
    assert [seen.target for seen in tunnel.backend.requests if seen.target != b"/favicon.ico"] == [b"/"]
