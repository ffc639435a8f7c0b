"""A host agent and an edge's control socket for control's tests: the wire is real (`hosts/wire`, `tunnel/wire`), the
machines are not.

The edge answers on a Unix socket as SPEC.md says, so control's own client speaks to it. What builds and machines do
is set by the test, per app. Every command is counted, so that a test can say how often something was asked.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

from hosts.wire import codec
from hosts.wire.commands import (
    BuildPhase,
    BuildReport,
    BuildSpec,
    BuiltImage,
    ErrorBody,
    Failure,
    MachineReport,
    OutboundName,
    OutboundNames,
    Outcome,
    SleepRequest,
    Socket,
)
from hosts.wire.spec import ImageDigest, MachineSpec, Policy
from hosts.wire.states import MachineState
from tunnel.wire import (
    MAX_LINE_BYTES,
    OPENED_OK,
    OpenHello,
    Refused,
    RouteTable,
    decode_control_hello,
    decode_table,
    encode_published,
    encode_refusal,
)

Answer = tuple[int, object]
LONG_POLL_STEP_S = 0.02
IMAGE = BuiltImage(ImageDigest("a" * 64), 12_000_000, "python", "python app.py")


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass
class Plan:
    """What happens to an app's builds and machines."""

    lines: tuple[str, ...] = ("Detected Python", "Installing flask", "Done")
    build_failure: Failure | None = None
    boot_failure: Failure | None = None
    listening: tuple[Socket, ...] = ()
    log_tail: tuple[str, ...] = ()
    hold_build: bool = False  # the build goes on until the test lets go
    hold_boot: bool = False


@dataclass
class FakeBuild:
    spec: BuildSpec
    source: bytes | None = None


@dataclass
class FakeMachine:
    spec: MachineSpec
    state: MachineState = MachineState.BOOTING
    since_ms: int = field(default_factory=now_ms)
    checkpoint: bool = False
    in_flight: int = 0


class FakeHost:
    """What an agent keeps: builds and machines by id."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.builds: dict[str, FakeBuild] = {}
        self.machines: dict[str, FakeMachine] = {}
        self.counts: Counter[str] = Counter()
        self.policies: list[tuple[str, Policy]] = []
        self.outbound: list[OutboundName] = []
        self.before: Callable[[str], None] = lambda verb: None  # a test may raise ConnectionError here
        self.refuse: dict[str, Answer] = {}
        self.lock = threading.RLock()

    def plan(self, app: str) -> Plan:
        return self.plans.setdefault(app, Plan())

    def set_state(self, machine_id: str, state: MachineState) -> None:
        machine = self.machines[machine_id]
        if machine.state is not state:
            machine.state, machine.since_ms = state, max(now_ms(), machine.since_ms + 1)

    def report(self, machine: FakeMachine) -> MachineReport:
        plan = self.plan(machine.spec.app)
        failed = machine.state is MachineState.FAILED
        return MachineReport(
            machine_id=machine.spec.machine_id,
            state=machine.state,
            since_ms=machine.since_ms,
            release=machine.spec.release,
            failure=plan.boot_failure if failed else None,
            port=None if failed else 8080,
            listening=plan.listening,
            log_tail=plan.log_tail,
            in_flight=machine.in_flight,
            checkpoint=machine.checkpoint,
        )

    def handle(self, method: str, target: str, body: bytes) -> Answer:
        url = urlsplit(target)
        query = {k: int(v[0]) for k, v in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")[1:]
        verb = f"{method} {'/'.join([parts[0], *parts[2:]])}"
        self.counts[verb] += 1
        self.before(verb)
        if verb in self.refuse:
            return self.refuse[verb]
        match [method, *parts]:
            case ["GET", "machines"]:
                return 200, {"machines": [codec.to_json(self.report(m)) for m in self.machines.values()]}
            case [_, "machines", machine_id, *rest]:
                return self._machine(method, machine_id, rest, query, body)
            case [_, "builds", build_id, *rest]:
                return self._build(method, build_id, rest, query, body)
        return 404, ErrorBody("wire:bad_message", "no such path")

    def _machine(self, method: str, machine_id: str, rest: list[str], query: dict[str, int], body: bytes) -> Answer:
        with self.lock:
            if method == "PUT":
                return self._put_machine(codec.decode(MachineSpec, body))
            if method == "DELETE":
                self.machines.pop(machine_id, None)
                return 200, {}
            machine = self.machines.get(machine_id)
            if machine is None:
                return 404, ErrorBody("machine:unknown", "no such machine")
        match [method, *rest]:
            case ["GET"]:
                end = time.monotonic() + query.get("wait_s", 0)
                self._bring_up(machine)
                while machine.state is MachineState.BOOTING and time.monotonic() < end:
                    time.sleep(LONG_POLL_STEP_S)
                    self._bring_up(machine)
            case ["PATCH", "policy"]:
                self.policies.append((machine_id, codec.decode(Policy, body)))
            case ["GET", "outbound"]:
                return 200, OutboundNames(tuple(self.outbound))
            case ["POST", "sleep"]:
                if machine.in_flight:
                    return 409, ErrorBody("machine:busy", "requests are in flight")
                self.set_state(machine_id, MachineState(codec.decode(SleepRequest, body).to.value))
            case ["POST", "wake"]:
                self.set_state(machine_id, MachineState.RUNNING)
            case ["POST", "checkpoint"]:
                machine.checkpoint = True
        return 200, self.report(machine)

    def _put_machine(self, spec: MachineSpec) -> Answer:
        known = self.machines.get(spec.machine_id)
        if known is None:
            self.machines[spec.machine_id] = machine = FakeMachine(spec)
            return 202, self.report(machine)
        if replace(known.spec, policy=spec.policy) != spec:
            return 409, ErrorBody("machine:spec_differs", "another specification")
        return 200, self.report(known)

    def _bring_up(self, machine: FakeMachine) -> None:
        plan = self.plan(machine.spec.app)
        if machine.state is MachineState.BOOTING and not plan.hold_boot:
            state = MachineState.FAILED if plan.boot_failure else MachineState.RUNNING
            self.set_state(machine.spec.machine_id, state)

    def _build(self, method: str, build_id: str, rest: list[str], query: dict[str, int], body: bytes) -> Answer:
        if method == "PUT" and not rest:
            self.builds.setdefault(build_id, FakeBuild(codec.decode(BuildSpec, body)))
            return 201, {}
        if method == "DELETE":
            self.builds.pop(build_id, None)
            return 200, {}
        build = self.builds.get(build_id)
        if build is None:
            return 404, ErrorBody("build:unknown", "no such build")
        if method == "PUT":
            build.source = build.source or body
            return 202, {}
        return 200, self._build_report(build, query.get("after", 0), query.get("wait_s", 0))

    def _build_report(self, build: FakeBuild, after: int, wait_s: int) -> BuildReport:
        plan = self.plan(build.spec.app)
        end = time.monotonic() + wait_s
        while plan.hold_build and after >= len(plan.lines) and time.monotonic() < end:
            time.sleep(LONG_POLL_STEP_S)
        lines = plan.lines[after:]
        done = not plan.hold_build and build.source is not None
        failed = done and plan.build_failure is not None
        return BuildReport(
            build_id=build.spec.build_id,
            phase=BuildPhase.DONE if done and not failed else BuildPhase.INSTALLING,
            outcome=(Outcome.FAILED if failed else Outcome.SUCCEEDED) if done else None,
            failure=plan.build_failure if failed else None,
            image=BuiltImage(ImageDigest("a" * 64), 12_000_000, "python", "python app.py")
            if done and not failed
            else None,
            lines=lines,
            next=after + len(lines),
        )


class FakeEdge:
    """An edge's control socket: routes are kept, streams to the host go to the FakeHost."""

    def __init__(self, path: Path, host: FakeHost) -> None:
        self.path = path
        self.host = host
        self.table = RouteTable(0, ())
        self.tables: list[RouteTable] = []
        self.linked = True
        self._server: socket.socket | None = None

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.path))
        server.listen(64)
        self._server = server
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # wakes the accept
            self._server.close()
            self._server = None
            self.path.unlink(missing_ok=True)

    def machine_of(self, hostname: str) -> str | None:
        return next((r.machine for r in self.table.routes if r.hostname == hostname), None)

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(sock,), daemon=True).start()

    def _connection(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as reader, contextlib.suppress(ConnectionError):
            hello = decode_control_hello(reader.readline(MAX_LINE_BYTES))
            if not isinstance(hello, OpenHello):
                table = decode_table(reader.readline())
                if table.generation > self.table.generation:
                    self.table = table
                    self.tables.append(table)
                sock.sendall(encode_published(self.table.generation))
            elif not self.linked:
                sock.sendall(encode_refusal(Refused("tunnel:no_host", "open", "no such host is linked")))
            else:
                sock.sendall(OPENED_OK)
                Exchange(sock, reader, self.host)


class Exchange(BaseHTTPRequestHandler):
    """One request of control's, on an opened stream."""

    protocol_version = "HTTP/1.1"

    def __init__(self, sock: socket.socket, reader: BinaryIO, host: FakeHost) -> None:
        self.host = host
        self.rfile = reader  # type: ignore[assignment]  # a buffered reader, as the base class makes itself
        self.wfile = sock.makefile("wb")
        self.client_address = ("control", 0)
        self.close_connection = True
        try:
            self.handle_one_request()
        finally:
            self.wfile.close()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, message = self.host.handle(self.command, self.path, body)
        data = json.dumps(message).encode() if isinstance(message, dict) else codec.encode(message)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent."""


@contextlib.contextmanager
def running_edge(path: Path) -> Iterator[FakeEdge]:
    edge = FakeEdge(path, FakeHost())
    edge.start()
    try:
        yield edge
    finally:
        edge.stop()
