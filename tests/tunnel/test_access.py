"""The access log: one line a request whatever the request says, with what woke its app and where the time went."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tunnel.world import World, until
from tunnel.edge.access import MAX_AGENT_BYTES, MAX_TARGET_BYTES, AccessLog
from tunnel.proto.request import RequestHead, parse_request
from tunnel.wire import CAUSED, WAITED, Opened, Route

ROUTE = Route("blog.localhost", "m1", "h1", "blog")
LINE = re.compile(rb"[\x20-\x7e]+\n")
# What a terminal, a log shipper or a reader's eye could be fooled with.
TRICKS = {
    "escape": b"\x1b[2J\x1b]0;owned\x07",
    "carriage return": b"a\rfake",
    "line feed": b'a\n{"event": "request"}',
    "bidi": "a\u202egpj.exe".encode(),
    "isolate": "\u2066a\u2069".encode(),
    "nul": b"a\0b",
    "quote": b'a", "status": 200, "b": "',
    "backslash": b"a\\",
    "c1 control": b"\x9b31m",
    "c1 in UTF-8": "\x9b31m".encode(),
    "delete": b"a\x7f",
    "not UTF-8": b"\xff\xfe",
    "line separator": "a\u2028b".encode(),
}


def written(folder: Path, **fields: Any) -> tuple[bytes, dict[str, Any]]:
    """The one line that is written of a request, as bytes and as what it says."""
    path = folder / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    log = AccessLog(fd)
    given: dict[str, Any] = {"head": head(), "route": ROUTE, "status": 200, "code": "", **fields}
    log.add("e-1", "127.0.0.1", **given)
    log.close()
    os.close(fd)
    line = path.read_bytes()
    read: dict[str, Any] = json.loads(line)
    return line, read


def head(**changes: Any) -> RequestHead:
    """A request as it was parsed, then changed behind the parser's back."""
    good = parse_request(b"GET /a HTTP/1.1\r\nHost: blog.localhost\r\nUser-Agent: test\r\n\r\n")
    return good._replace(**changes)


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_no_byte_of_a_target_or_agent_reaches_a_terminal(trick: bytes, tmp_path: Path) -> None:
    asked = head(target=b"/" + trick)
    object.__setattr__(asked.fields, "user_agent", trick)  # the parser would refuse some of these
    line, read = written(tmp_path, head=asked)
    assert LINE.fullmatch(line)
    assert read["target"].encode("latin-1") == b"/" + trick
    assert read["agent"].encode("latin-1") == trick
    assert (read["status"], read["event"]) == (200, "request")


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_no_byte_of_a_code_or_route_reaches_a_terminal(trick: bytes, tmp_path: Path) -> None:
    text = trick.decode("latin-1")
    line, read = written(tmp_path, route=Route("blog.localhost", text, "h1", text), code=text)
    assert LINE.fullmatch(line)
    assert (read["app"], read["machine"], read["code"]) == (text, text, text)


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
@pytest.mark.parametrize("where", ["target", "host", "agent", "method"])
async def test_through_the_edge_a_hostile_request_is_one_clean_line(where: str, trick: bytes, tunnel: World) -> None:
    parts = {"method": b"GET", "target": b"/", "host": b"blog.localhost", "agent": b"test"}
    parts[where] += trick
    raw = b"%(method)s %(target)s HTTP/1.1\r\nHost: %(host)s\r\nUser-Agent: %(agent)s\r\nConnection: close\r\n\r\n"
    await tunnel.say(raw % {name.encode(): value for name, value in parts.items()})
    tunnel.edge.core.access.flush()
    await until(lambda: tunnel.log_file.read_bytes().count(b"\n") >= 1)
    (line,) = tunnel.log_file.read_bytes().splitlines(keepends=True)
    assert LINE.fullmatch(line)
    assert json.loads(line)["event"] == "request"


def test_what_is_too_long_is_cut(tmp_path: Path) -> None:
    asked = head(target=b"/" * 20_000)
    object.__setattr__(asked.fields, "user_agent", b"x" * 5000)
    _, read = written(tmp_path, head=asked)
    assert (len(read["target"]), len(read["agent"])) == (MAX_TARGET_BYTES, MAX_AGENT_BYTES)


def test_a_line_says_what_woke_the_app_and_where_the_time_went(tmp_path: Path) -> None:
    opened = Opened(CAUSED, 345.25)
    _, read = written(
        tmp_path, pipe="fresh", bytes_in=1, bytes_out=2, open_s=0.35, first_byte_s=0.6, total_s=0.61, opened=opened
    )
    assert set(read) == {
        "timestamp", "level", "event", "id", "client", "method", "hostname", "target", "agent", "app", "machine",
        "status", "code", "pipe", "wake", "wake_ms", "bytes_in", "bytes_out", "open_ms", "first_byte_ms", "total_ms",
    }  # fmt: skip
    assert (read["wake"], read["wake_ms"]) == ("caused", 345.25)
    assert (read["open_ms"], read["first_byte_ms"], read["total_ms"]) == (350.0, 600.0, 610.0)


def test_a_request_that_could_not_be_read_is_a_line_too(tmp_path: Path) -> None:
    _, read = written(tmp_path, head=None, route=None, status=400, code="request:malformed")
    assert (read["method"], read["hostname"], read["wake"], read["status"]) == ("", "", "", 400)
    assert "app" not in read


async def test_through_the_edge_the_line_says_who_woke_the_app(tunnel: World) -> None:
    tunnel.agent.opened = Opened(WAITED, 12.5)
    request = b"GET / HTTP/1.1\r\nHost: blog.localhost\r\nConnection: close\r\n\r\n"
    await tunnel.say(request)
    await tunnel.say(request)
    tunnel.edge.core.access.flush()
    await until(lambda: tunnel.log_file.read_bytes().count(b"\n") == 2)
    first, second = (json.loads(line) for line in tunnel.log_file.read_bytes().splitlines())
    assert (first["pipe"], first["wake"], first["wake_ms"]) == ("fresh", "waited", 12.5)
    assert (second["pipe"], second["wake"], second["wake_ms"]) == ("kept", "", 0.0)
