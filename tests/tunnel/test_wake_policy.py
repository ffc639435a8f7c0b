"""Requests that leave a sleeping machine asleep."""

from __future__ import annotations

import json

import pytest

from tests.tunnel.test_exchange import GET, read_answer
from tests.tunnel.world import World, until
from tunnel.edge.wake import is_robot
from tunnel.wire import NoWake, Route

MONITOR = "User-Agent: Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)"
PERSON = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def route(no_wake: NoWake) -> Route:
    return Route("blog.localhost", "m1", "h1", "blog", no_wake=no_wake)


def body_of(answer: bytes) -> object:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    "agent",
    [
        b"Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)",
        b"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
        b"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        b"kube-probe/1.31",
    ],
)
def test_monitors_and_crawlers_are_known(agent: bytes) -> None:
    assert is_robot(agent)


@pytest.mark.parametrize(
    "agent",
    [
        b"",
        b"curl/8.5.0",
        b"python-httpx/0.28.1",
        b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        b"Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36",
        b"Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
        b"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ChatGPT-User/1.0; +https://openai.com/bot)",
    ],
)
def test_people_programs_and_what_fetches_for_a_person_are_no_robots(agent: bytes) -> None:
    assert not is_robot(agent)


async def test_a_monitor_does_not_wake_and_is_told_why(tunnel: World) -> None:
    await tunnel.publish(2, route(NoWake(robots=True)))
    tunnel.machine.awake = False
    answer = await tunnel.get("/", MONITOR)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 5\r\n" in answer
    assert b"X-Burrow-Error: machine:asleep\r\n" in answer
    assert b"Content-Type: text/plain; charset=utf-8\r\n" in answer
    assert b"Monitors and crawlers do not wake it." in answer
    error = body_of(await tunnel.get("/", MONITOR, "Accept: application/json"))
    assert error == {
        "error": {
            "code": "machine:asleep",
            "phase": "wake-policy",
            "message": "The app is asleep. Monitors and crawlers do not wake it.",
        }
    }
    assert tunnel.machine.wakes == 0
    assert (await tunnel.get("/", PERSON)).endswith(b"hello")
    assert tunnel.machine.wakes == 1


async def test_a_monitor_wakes_where_the_route_says_nothing_of_it(tunnel: World) -> None:
    tunnel.machine.awake = False
    assert (await tunnel.get("/", MONITOR)).endswith(b"hello")
    assert tunnel.machine.wakes == 1


async def test_a_running_machine_serves_a_monitor_but_does_not_count_it(tunnel: World) -> None:
    await tunnel.publish(2, route(NoWake(robots=True)))
    assert (await tunnel.get("/", MONITOR)).endswith(b"hello")
    await until(lambda: tunnel.agent.activities == [("m1", 1), ("m1", 0)])
    assert (tunnel.agent.quiets, tunnel.agent.loud) == (["m1"], [])
    await tunnel.get("/", PERSON)
    assert tunnel.agent.loud != []


@pytest.mark.parametrize(
    ("method", "path", "wakes"),
    [
        ("HEAD", "/", 0),
        ("GET", "/health", 0),
        ("GET", "/health?deep=1", 0),
        ("GET", "/health/db", 1),
        ("GET", "/cron/", 0),
        ("POST", "/cron/daily", 0),
        ("GET", "/", 1),
        ("OPTIONS", "/", 1),
    ],
)
async def test_methods_and_paths_of_the_policy_leave_it_asleep(
    tunnel: World, method: str, path: str, wakes: int
) -> None:
    await tunnel.publish(2, route(NoWake(methods=("HEAD",), paths=("/health", "/cron/*"))))
    tunnel.machine.awake = False
    answer = await tunnel.get(path, method=method)
    assert answer.startswith(b"HTTP/1.1 200 " if wakes else b"HTTP/1.1 503 ")
    assert tunnel.machine.wakes == wakes


async def test_a_websocket_on_a_path_of_the_policy_leaves_it_asleep(tunnel: World) -> None:
    await tunnel.publish(2, route(NoWake(paths=("/ws",))))
    tunnel.machine.awake = False
    answer = await tunnel.say(
        b"GET /ws HTTP/1.1\r\nHost: blog.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert tunnel.machine.wakes == 0


async def test_a_kept_pipe_to_a_machine_that_fell_asleep_says_asleep_too(tunnel: World) -> None:
    await tunnel.publish(2, route(NoWake(paths=("/health",))))
    reader, writer = await tunnel.open()
    writer.write(GET % b"/health")
    assert (await read_answer(reader))[1] == b"hello"
    tunnel.machine.awake = False
    writer.write(GET % b"/health")
    head, _ = await read_answer(reader)
    writer.close()
    assert head.startswith(b"HTTP/1.1 503 ")
    assert tunnel.machine.wakes == 0
