"""Requests and answers through a whole tunnel: what goes in comes out, and what ends, ends where it should."""

from __future__ import annotations

from tests.tunnel.world import World


async def test_a_request_reaches_the_app_and_its_answer_comes_back(tunnel: World) -> None:
    answer = await tunnel.get("/a%20b/../c?x=%0d%0a&y=\\")
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    (seen,) = tunnel.backend.requests
    assert seen.method == b"GET"
    assert seen.target == b"/a%20b/../c?x=%0d%0a&y=\\"
