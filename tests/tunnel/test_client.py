"""Control's client against a real edge and a real host: routes, requests, streams, and clear errors."""

from __future__ import annotations

import asyncio
import io
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.tunnel.backend import Visit
from tests.tunnel.world import World, until
from tunnel.client import EdgeClient, EdgeUnavailable, HostUnavailable
from tunnel.wire import Route

T = TypeVar("T")


async def call(what: Callable[[], T]) -> T:
    """The client is synchronous: it runs in a thread, as it does in a worker."""
    async with asyncio.timeout(20):
        return await asyncio.to_thread(what)


@pytest.fixture
def client(tunnel: World) -> EdgeClient:
    return EdgeClient([tunnel.config.control_socket])


async def test_the_control_socket_is_for_its_owner_and_group(tunnel: World) -> None:
    assert stat.S_IMODE(tunnel.config.control_socket.stat().st_mode) == 0o660


async def test_a_newer_table_is_taken_and_an_older_one_is_not(tunnel: World, client: EdgeClient) -> None:
    path = str(tunnel.config.control_socket)
    routes = [Route("a.localhost", "m1", "h1", "a"), Route("b.localhost", "m1", "h1", "b")]
    assert await call(lambda: client.publish_routes(5, routes)) == {path: 5}
    assert (await tunnel.get(host="a.localhost")).endswith(b"hello")
    assert (await tunnel.get()).startswith(b"HTTP/1.1 404 ")
    assert await call(lambda: client.publish_routes(5, [])) == {path: 5}
    assert await call(lambda: client.publish_routes(4, [])) == {path: 5}
    assert (await tunnel.get(host="b.localhost")).endswith(b"hello")


async def test_a_large_table_is_taken(tunnel: World, client: EdgeClient) -> None:
    routes = [Route(f"app-{i}.localhost", f"m{i}", "h1", f"app-{i}") for i in range(20_000)]
    assert set((await call(lambda: client.publish_routes(7, routes, timeout_s=20))).values()) == {7}
    assert len(tunnel.edge.core.router) == 20_000


async def test_a_bad_table_is_refused_and_changes_nothing(tunnel: World, client: EdgeClient) -> None:
    with pytest.raises(Exception, match="lower-case DNS name"):
        await call(lambda: client.publish_routes(9, [Route("A.localhost", "m", "h", "a")]))
    assert tunnel.edge.core.router.generation == 1


async def test_an_edge_that_is_away_is_left_out_and_all_away_is_an_error(tunnel: World, tmp_path: Path) -> None:
    nobody = tmp_path / "nobody.sock"
    both = EdgeClient([nobody, tunnel.config.control_socket])
    assert await call(lambda: both.publish_routes(3, [])) == {str(tunnel.config.control_socket): 3}
    assert (await call(lambda: both.request_host("h1", "GET", "/")))[1] == b"hello"
    alone = EdgeClient([nobody])
    with pytest.raises(EdgeUnavailable):
        await call(lambda: alone.publish_routes(4, []))
    with pytest.raises(EdgeUnavailable):
        await call(lambda: alone.request_host("h1", "GET", "/"))


async def test_a_request_reaches_the_hosts_api(tunnel: World, client: EdgeClient) -> None:
    async def created(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")

    tunnel.backend.replies[b"/v1/machines"] = created
    assert await call(lambda: client.request_host("h1", "POST", "/v1/machines", b'{"a":1}')) == (201, b"{}")
    (seen,) = tunnel.backend.requests
    assert seen.method == b"POST"
    assert seen.body == b'{"a":1}'
    assert seen.values(b"content-type") == [b"application/json"]
    assert tunnel.agent.activities == []


@pytest.mark.parametrize("seekable", [True, False])
async def test_a_file_is_streamed(tunnel: World, client: EdgeClient, seekable: bool) -> None:  # noqa: FBT001
    data = b"0123456789abcdef" * 500_000

    class Pipe(io.RawIOBase):
        left = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, into: object) -> int:
            return self.left.readinto(into)  # type: ignore[arg-type]

    body = io.BytesIO(data) if seekable else io.BufferedReader(Pipe())
    status, _ = await call(lambda: client.request_host("h1", "PUT", "/images/x", body, timeout_s=15))
    assert status == 200
    assert tunnel.backend.requests[0].body == data


async def test_an_answer_is_read_as_it_comes(tunnel: World, client: EdgeClient) -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def log(visit: Visit) -> None:
        await visit.read_body()
        await visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\none\r\n\r\n")
        await go_on.wait()
        await visit.send(b"5\r\ntwo\r\n\r\n0\r\n\r\n")

    def read() -> list[bytes]:
        with client.stream_host("h1", "GET", "/log") as response:
            lines = [response.readline()]
            loop.call_soon_threadsafe(go_on.set)
            lines.append(response.readline())
            return lines

    tunnel.backend.replies[b"/log"] = log
    assert await call(read) == [b"one\r\n", b"two\r\n"]


async def test_an_early_answer_to_an_upload_is_heard(tunnel: World, client: EdgeClient) -> None:
    async def no(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbusy")
        visit.writer.close()

    tunnel.backend.replies[b"/up"] = no
    body = io.BytesIO(b"x" * 50_000_000)
    assert await call(lambda: client.request_host("h1", "POST", "/up", body)) == (409, b"busy")


async def test_unknown_hosts_and_machines_have_codes(
    tunnel: World, client: EdgeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnel.edge.hosts.HOST_AWAY_S", 0.0)
    with pytest.raises(HostUnavailable) as caught:
        await call(lambda: client.request_host("h9", "GET", "/"))
    assert caught.value.code == "tunnel:no_host"
    with pytest.raises(HostUnavailable) as caught:
        await call(lambda: client.open_machine("m9", may_wake=True))
    assert caught.value.code == "machine:unknown"


async def test_a_host_that_does_not_answer_is_a_timeout_and_one_that_hangs_up_is_broken(
    tunnel: World, client: EdgeClient
) -> None:
    async def silent(visit: Visit) -> None:
        await visit.reader.read(1)

    async def hang_up(visit: Visit) -> None:
        visit.writer.close()

    tunnel.backend.replies[b"/silent"] = silent
    tunnel.backend.replies[b"/gone"] = hang_up
    for path, code in (("/silent", "tunnel:timeout"), ("/gone", "tunnel:broken")):
        with pytest.raises(HostUnavailable) as caught:
            await call(lambda path=path: client.request_host("h1", "GET", path, timeout_s=0.5))  # type: ignore[misc]
        assert caught.value.code == code
    await until(lambda: tunnel.backend.open_connections == 0)


async def test_a_pipe_to_a_machine_wakes_it_but_counts_as_no_activity(tunnel: World, client: EdgeClient) -> None:
    tunnel.machine.awake = False

    def talk() -> bytes:
        with client.open_machine("m1", may_wake=True) as sock:
            sock.sendall(b"GET /x HTTP/1.1\r\nHost: y\r\n\r\n")
            return sock.recv(4096)

    assert (await call(talk)).endswith(b"hello")
    assert tunnel.machine.wakes == 1
    assert tunnel.agent.activities == []


@pytest.mark.parametrize("line", [b"{}\n", b"GET / HTTP/1.1\r\n", b'{"v":1,"hello":"open","to":{}}\n'])
async def test_what_is_no_hello_is_refused(tunnel: World, line: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(tunnel.config.control_socket))
    writer.write(line)
    assert b"tunnel:malformed" in await reader.read()
    writer.close()
