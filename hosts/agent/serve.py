"""The agent's API, hosts/wire/SPEC.md section 1: which request does what, and which exception is which answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from http import HTTPStatus
from typing import TypeVar

from hosts.agent.admission import BadSpec, check_build, check_machine, check_policy, is_build_id
from hosts.agent.builds import Build, Builds, SourceTooLarge
from hosts.agent.fleet import Fleet, HostFull, SpecDiffers
from hosts.agent.http import Answer, ApiError, Request
from hosts.agent.machine import Busy, Machine, NotRunning
from hosts.agent.sleeps import CheckpointFailed, SuspendFailed
from hosts.agent.starts import Gone, StartFailed
from hosts.wire.codec import Json, WireError, decode, encode, to_json
from hosts.wire.commands import BuildSpec, OutboundNames, SleepRequest, WakeRequest
from hosts.wire.spec import MachineId, MachineSpec, Policy

T = TypeVar("T")

WIRE_VERSION = 1
MAX_WAIT_S = 30.0  # that a caller may ask to wait for a state
API_WAKE_DEADLINE_S = 110.0  # a wake asked for through the API


class Api:
    """Routes requests to the fleet and the builds."""

    def __init__(self, fleet: Fleet, builds: Builds, *, host_id: str, accelerator: str) -> None:
        self._fleet = fleet
        self._builds = builds
        self._host_id = host_id
        self._accelerator = accelerator

    async def handle(self, request: Request) -> Answer:
        """Answer one request, or ApiError."""
        handler = self._route(request)
        try:
            return await handler
        except (WireError, BadSpec) as e:
            raise ApiError(HTTPStatus.BAD_REQUEST, "wire:bad_message", str(e)) from None
        except (HostFull, SuspendFailed) as e:
            raise ApiError(HTTPStatus.INSUFFICIENT_STORAGE, "host:full", str(e)) from None
        except SpecDiffers:
            raise ApiError(
                HTTPStatus.CONFLICT, "machine:spec_differs", "there is a machine of that id with another spec"
            ) from None
        except Busy:
            raise ApiError(HTTPStatus.CONFLICT, "machine:busy", "requests are in flight") from None
        except (NotRunning, CheckpointFailed) as e:
            raise ApiError(HTTPStatus.CONFLICT, "machine:not_running", str(e) or "the machine does not run") from None
        except SourceTooLarge as e:
            raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "build:source_too_large", str(e)) from None
        except Gone:
            raise ApiError(HTTPStatus.NOT_FOUND, "machine:unknown", "the machine is being removed") from None

    def _route(self, request: Request) -> Awaitable[Answer]:
        match request.method, request.segments:
            case "GET", ("v1", "health"):
                return self._health()
            case "GET", ("v1", "machines"):
                return self._list()
            case "PUT", ("v1", "machines", machine_id):
                return self._create(machine_id, request)
            case "DELETE", ("v1", "machines", machine_id):
                return self._destroy(machine_id)
            case "GET", ("v1", "machines", machine_id):
                return self._report(self._machine(machine_id), request)
            case "PATCH", ("v1", "machines", machine_id, "policy"):
                return self._policy(self._machine(machine_id), request)
            case "POST", ("v1", "machines", machine_id, "sleep"):
                return self._sleep(self._machine(machine_id), request)
            case "POST", ("v1", "machines", machine_id, "wake"):
                return self._wake(self._machine(machine_id), request)
            case "POST", ("v1", "machines", machine_id, "checkpoint"):
                return self._checkpoint(self._machine(machine_id))
            case "GET", ("v1", "machines", machine_id, "logs"):
                return self._logs(self._machine(machine_id), request)
            case "GET", ("v1", "machines", machine_id, "outbound"):
                return self._outbound(self._machine(machine_id))
            case "PUT", ("v1", "builds", build_id):
                return self._declare_build(build_id, request)
            case "PUT", ("v1", "builds", build_id, "source"):
                return self._build_source(self._build(build_id), request)
            case "GET", ("v1", "builds", build_id):
                return self._build_report(self._build(build_id), request)
            case "DELETE", ("v1", "builds", build_id):
                return self._forget_build(build_id)
        raise ApiError(
            HTTPStatus.NOT_FOUND, "wire:bad_message", f"no such request: {request.method} /{'/'.join(request.segments)}"
        )

    # -- machines

    async def _health(self) -> Answer:
        return _json(
            {
                "version": WIRE_VERSION,
                "host_id": self._host_id,
                "accelerator": self._accelerator,
                "machines": len(self._fleet.all()),
            }
        )

    async def _list(self) -> Answer:
        return _json({"machines": [to_json(await machine.report()) for machine in self._fleet.all()]})

    async def _create(self, machine_id: str, request: Request) -> Answer:
        spec = await _body(request, MachineSpec)
        check_machine(spec)
        if spec.machine_id != machine_id:
            raise BadSpec("machine_id: not the one in the path")
        if self._fleet.find(spec.machine_id) is None and not self._fleet.parts.images.has(spec.image):
            raise ApiError(HTTPStatus.NOT_FOUND, "image:unknown", f"image {spec.image} is not on this host")
        machine, created = await self._fleet.create(spec)
        return Answer(encode(await machine.report()), HTTPStatus.ACCEPTED if created else HTTPStatus.OK)

    async def _destroy(self, machine_id: str) -> Answer:
        await self._fleet.destroy(MachineId(machine_id))
        return _json({})

    async def _report(self, machine: Machine, request: Request) -> Answer:
        return Answer(encode(await machine.report(wait_s=_wait_s(request))))

    async def _policy(self, machine: Machine, request: Request) -> Answer:
        policy = await _body(request, Policy)
        check_policy(policy)
        await machine.set_policy(policy)
        return Answer(encode(await machine.report()))

    async def _sleep(self, machine: Machine, request: Request) -> Answer:
        wanted = await _body(request, SleepRequest)
        await machine.sleep(wanted.to)
        return Answer(encode(await machine.report()))

    async def _wake(self, machine: Machine, request: Request) -> Answer:
        wanted = await _body(request, WakeRequest)
        try:
            await machine.wake(wanted.cause, deadline_s=API_WAKE_DEADLINE_S)
        except StartFailed as e:
            message = f"in phase {e.failure.phase}: {e.failure.message}"
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, e.failure.code, message) from None
        except TimeoutError:
            message = f"not awake after {API_WAKE_DEADLINE_S:.0f} s, in phase {machine.phase}"
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "wake:timeout", message) from None
        return Answer(encode(await machine.report()))

    async def _checkpoint(self, machine: Machine) -> Answer:
        await machine.checkpoint()
        return Answer(encode(await machine.report()))

    async def _logs(self, machine: Machine, request: Request) -> Answer:
        if machine.gate_open:
            async with asyncio.timeout(MAX_WAIT_S):
                await machine.logs.pull(machine.guest)
        lines, following = machine.logs.page(_number(request, "after"))
        return _json({"lines": list(lines), "next": following})

    async def _outbound(self, machine: Machine) -> Answer:
        return Answer(encode(OutboundNames(machine.parts.network.outbound(machine.history.record.slot))))

    def _machine(self, machine_id: str) -> Machine:
        machine = self._fleet.find(MachineId(machine_id))
        if machine is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "machine:unknown", f"no machine {machine_id!r} on this host")
        return machine

    # -- builds

    async def _declare_build(self, build_id: str, request: Request) -> Answer:
        spec = await _body(request, BuildSpec)
        check_build(spec)
        if spec.build_id != build_id:
            raise BadSpec("build_id: not the one in the path")
        created = await self._builds.declare(spec)
        report = await self._build(build_id).report(after=0, wait_s=0)
        return Answer(encode(report), HTTPStatus.CREATED if created else HTTPStatus.OK)

    async def _build_source(self, build: Build, request: Request) -> Answer:
        fresh = not build.started
        await self._builds.receive(build, request.chunks())
        return Answer(encode(await build.report(after=0, wait_s=0)), HTTPStatus.ACCEPTED if fresh else HTTPStatus.OK)

    async def _build_report(self, build: Build, request: Request) -> Answer:
        return Answer(encode(await build.report(after=_number(request, "after"), wait_s=_wait_s(request))))

    async def _forget_build(self, build_id: str) -> Answer:
        await self._builds.forget(build_id)
        return _json({})

    def _build(self, build_id: str) -> Build:
        build = self._builds.find(build_id) if is_build_id(build_id) else None
        if build is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "build:unknown", f"no build {build_id!r} on this host")
        return build


async def _body(request: Request, cls: type[T]) -> T:
    return decode(cls, await request.body() or b"{}")


def _json(value: Json) -> Answer:
    return Answer(json.dumps(value).encode())


def _wait_s(request: Request) -> float:
    return min(float(_number(request, "wait_s")), MAX_WAIT_S)


def _number(request: Request, name: str) -> int:
    text = request.query.get(name, "0")
    # int() alone would take "+1", "1_0" and other scripts' digits
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise ApiError(HTTPStatus.BAD_REQUEST, "wire:bad_message", f"{name}: wanted a whole number")
    return int(text)
