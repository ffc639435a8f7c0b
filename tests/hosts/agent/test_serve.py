"""The agent's API over a fake host, as hosts/wire/SPEC.md has it: every request, every answer, every refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hosts.agent.builds import Builds
from hosts.agent.http import ApiServer
from hosts.agent.serve import Api
from hosts.wire.codec import encode, from_json
from hosts.wire.commands import OutboundName, OutboundNames, SleepDepth, SleepRequest, WakeRequest
from hosts.wire.events import Cause
from hosts.wire.spec import ImageDigest, Policy
from hosts.wire.states import MachineState
from tests.fakes.builder import FakeBuilder
from tests.fakes.world import App
from tests.hosts.agent.rig import ID, Rig, spec

Call = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
async def builder() -> FakeBuilder:
    return FakeBuilder()


@pytest.fixture
async def call(rig: Rig, builder: FakeBuilder, tmp_path: Path) -> AsyncIterator[Call]:
    """One request of control's: (method, path, message) -> (status, JSON)."""
    builds = Builds(tmp_path / "builds", builder, slots=rig.slots, uid_of=lambda slot: 0, scribe=rig.scribe, at_once=1)
    server = ApiServer(tmp_path / "s", Api(rig.fleet, builds, host_id="host-0", accelerator="tcg").handle)
    await server.start()

    async def request(method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else b"" if body is None else encode(body)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        head, _, text = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(text)

    yield request
    await builds.cancel_all()
    await server.close()


async def test_health_says_who_this_is(call: Call) -> None:
    assert await call("GET", "/v1/health") == (
        200,
        {"version": 1, "host_id": "host-0", "accelerator": "tcg", "machines": 0},
    )


async def test_a_machine_is_declared_watched_listed_and_deleted(rig: Rig, call: Call) -> None:
    status, report = await call("PUT", f"/v1/machines/{ID}", spec())
    assert (status, report["machine_id"]) == (202, ID)
    status, report = await call("GET", f"/v1/machines/{ID}?wait_s=30")
    assert (status, report["state"], report["port"]) == (200, "running", 8080)
    assert (await call("PUT", f"/v1/machines/{ID}", spec()))[0] == 200
    status, listed = await call("GET", "/v1/machines")
    assert (status, [m["machine_id"] for m in listed["machines"]]) == (200, [ID])
    assert await call("DELETE", f"/v1/machines/{ID}") == (200, {})
    assert await call("DELETE", f"/v1/machines/{ID}") == (200, {})
    assert (await call("GET", f"/v1/machines/{ID}"))[0] == 404
    assert rig.world.alive() == []


async def test_another_spec_under_the_same_id_is_a_conflict(rig: Rig, call: Call) -> None:
    await rig.machine()
    status, error = await call("PUT", f"/v1/machines/{ID}", spec(release=2))
    assert (status, error["code"]) == (409, "machine:spec_differs")


async def test_an_image_that_is_not_here_is_said_so(call: Call) -> None:
    status, error = await call("PUT", f"/v1/machines/{ID}", spec(image=ImageDigest("f" * 64)))
    assert (status, error["code"]) == (404, "image:unknown")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        encode(spec("2" * 32)),
        encode(spec(app="No")),
        encode(spec(policy=Policy(0, 0))),
        encode(spec()).replace(b'"none"', b'"everything"'),
        encode(spec()).replace(b'"release":1', b'"release":"1"'),
    ],
)
async def test_a_spec_that_is_none_is_a_bad_message(call: Call, body: bytes) -> None:
    status, error = await call("PUT", f"/v1/machines/{ID}", body)
    assert (status, error["code"]) == (400, "wire:bad_message")


async def test_sleep_and_wake(rig: Rig, call: Call) -> None:
    machine = await rig.machine()
    status, report = await call("POST", f"/v1/machines/{ID}/sleep", SleepRequest(SleepDepth.SUSPENDED))
    assert (status, report["state"]) == (200, "suspended")
    status, report = await call("POST", f"/v1/machines/{ID}/sleep")
    assert (status, report["state"]) == (200, "suspended")
    status, report = await call("POST", f"/v1/machines/{ID}/wake", WakeRequest(Cause.API))
    assert (status, report["state"], report["last_start"]["cause"]) == (200, "running", "api")
    assert machine.history.state is MachineState.RUNNING


async def test_sleep_of_a_failed_machine_is_refused(rig: Rig, call: Call) -> None:
    await rig.machine(app=App(listens=False))
    status, error = await call("POST", f"/v1/machines/{ID}/sleep")
    assert (status, error["code"]) == (409, "machine:not_running")


async def test_a_wake_that_fails_names_its_phase(rig: Rig, call: Call) -> None:
    await rig.machine(app=App(listens=False))
    status, error = await call("POST", f"/v1/machines/{ID}/wake")
    assert (status, error["code"]) == (503, "check:not_listening")
    assert "in phase listening" in error["message"]


async def test_a_checkpoint_is_taken_of_what_has_memory_only(rig: Rig, call: Call) -> None:
    machine = await rig.machine()
    status, report = await call("POST", f"/v1/machines/{ID}/checkpoint")
    assert (status, report["state"], report["checkpoint"]) == (200, "running", True)
    await machine.sleep(SleepDepth.SUSPENDED)
    status, error = await call("POST", f"/v1/machines/{ID}/checkpoint")
    assert (status, error["code"]) == (409, "machine:not_running")


async def test_the_names_a_machine_asked_for_are_told(rig: Rig, call: Call) -> None:
    machine = await rig.machine()
    names = OutboundNames((OutboundName("evil.example", allowed=False, count=2, last_ms=7),))
    rig.network.asked[machine.history.record.slot] = names.names
    status, body = await call("GET", f"/v1/machines/{ID}/outbound")
    assert (status, from_json(OutboundNames, body)) == (200, names)


async def test_a_policy_is_patched(rig: Rig, call: Call) -> None:
    machine = await rig.machine()
    assert (await call("PATCH", f"/v1/machines/{ID}/policy", Policy(7, 8)))[0] == 200
    assert machine.spec.policy == Policy(7, 8)
    assert (await call("PATCH", f"/v1/machines/{ID}/policy", Policy(-7, 8)))[0] == 400


async def test_logs_come_in_pages(rig: Rig, call: Call) -> None:
    await rig.machine()
    assert await call("GET", f"/v1/machines/{ID}/logs?after=0") == (
        200,
        {"lines": ["started python app.py"], "next": 1},
    )
    assert await call("GET", f"/v1/machines/{ID}/logs?after=1") == (200, {"lines": [], "next": 1})


@pytest.mark.parametrize("number", ["-1", "+1", "1_0", "x", "", "٣", "9" * 20])
async def test_a_number_that_is_none_is_a_bad_message(rig: Rig, call: Call, number: str) -> None:
    await rig.machine()
    status, error = await call("GET", f"/v1/machines/{ID}/logs?after={number}".encode().decode("latin-1"))
    assert (status, error["code"]) == (400, "wire:bad_message")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/machines/{ID}"),
        ("POST", f"/v1/machines/{ID}/sleep"),
        ("POST", f"/v1/machines/{ID}/wake"),
        ("PATCH", f"/v1/machines/{ID}/policy"),
        ("GET", "/v1/machines/..%2f..%2fetc"),
        ("GET", "/v1/builds/" + "c" * 32),
        ("PUT", "/v1/builds/" + "c" * 32 + "/source"),
        ("GET", "/"),
        ("GET", "/v1"),
        ("GET", "/v2/health"),
        ("POST", "/v1/health"),
    ],
)
async def test_what_is_not_there_is_not_found(call: Call, method: str, path: str) -> None:
    assert (await call(method, path))[0] == 404


async def test_a_full_host_says_so(rig: Rig, call: Call) -> None:
    while True:
        try:
            rig.slots.take()
        except Exception:  # noqa: BLE001 - until it is full
            break
    status, error = await call("PUT", f"/v1/machines/{ID}", spec())
    assert (status, error["code"]) == (507, "host:full")


async def test_a_machine_that_boots_is_waited_for_no_longer_than_asked(rig: Rig, call: Call) -> None:
    rig.world.apps[ID] = App(hello_hangs=True)
    await call("PUT", f"/v1/machines/{ID}", spec())
    status, report = await call("GET", f"/v1/machines/{ID}?wait_s=0")
    assert (status, report["state"]) == (200, "booting")
    await call("DELETE", f"/v1/machines/{ID}")


async def test_a_build_from_its_declaration_to_its_image(call: Call, builder: FakeBuilder) -> None:
    build = "c" * 32
    assert (await call("PUT", f"/v1/builds/{build}", builder.spec))[0] == 201
    assert (await call("PUT", f"/v1/builds/{build}", builder.spec))[0] == 200
    assert (await call("PUT", f"/v1/builds/{build}/source", b"a tar" * 50_000))[0] == 202
    builder.may_end.set()
    report: dict[str, Any] = {"outcome": None, "next": 0}
    lines: list[str] = []
    while report["outcome"] is None:
        status, report = await call("GET", f"/v1/builds/{build}?after={report['next']}&wait_s=5")
        assert status == 200
        lines += report["lines"]
    assert (report["phase"], report["outcome"], report["image"]["kind"]) == ("done", "succeeded", "python")
    assert lines == ["got 250000 bytes", "built"]
    assert (await call("PUT", f"/v1/builds/{build}/source", b"again"))[0] == 200
    assert await call("DELETE", f"/v1/builds/{build}") == (200, {})
    assert (await call("GET", f"/v1/builds/{build}"))[0] == 404


async def test_a_build_of_another_id_than_its_path_is_a_bad_message(call: Call, builder: FakeBuilder) -> None:
    assert (await call("PUT", "/v1/builds/" + "d" * 32, builder.spec))[0] == 400
    assert (await call("PUT", "/v1/builds/nonsense", replace(builder.spec, build_id="nonsense")))[0] == 400
