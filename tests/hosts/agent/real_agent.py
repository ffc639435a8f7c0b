"""A real host for a test: `python -m hosts` and `python -m tunnel` as processes of their own, over real images and a
real QEMU.

Control is played by the test: it publishes routes, calls the agent's API through the edge, and takes the journal or
does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from hosts.net.addresses import namespace_prefix
from hosts.vmm.orphans import vmm_processes
from hosts.wire.codec import decode, encode, from_json
from hosts.wire.commands import MachineReport, SleepDepth, SleepRequest
from hosts.wire.events import Event, EventAck, EventBatch
from hosts.wire.spec import ImageDigest, MachineId, MachineSpec, Policy, Process, Size
from tunnel.client import EdgeClient, EdgeUnavailable, HostUnavailable
from tunnel.wire import Route

ROOT = Path(__file__).resolve().parents[3]
APP_HOST = "blog.localhost"
ID = MachineId("1" * 32)
TOKEN = hashlib.sha256(b"link").hexdigest()
START_TIMEOUT_S = 60.0
BOOT_TIMEOUT_S = 120.0

# Answers with the count, the guest's time, fresh randomness and the method; counts in memory only.
COUNTER_APP = """
import http.server, itertools, os, time
count = itertools.count(1)  # next() is atomic: the server has a thread per connection
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        out = f"{next(count)} {time.time()} {os.urandom(8).hex()} {self.command} {len(body)}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(out))); self.end_headers()
        self.wfile.write(out)
    do_POST = do_GET
    def log_message(self, *a): pass
print("counter starts", flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), H).serve_forever()
"""


@dataclass
class Answer:
    """What the counter app said."""

    status: int
    body: str
    seconds: float
    asked_at_s: float

    @property
    def count(self) -> int:
        assert self.status == 200, (self.status, self.body)
        return int(self.body.split()[0])

    @property
    def clock_s(self) -> float:
        return float(self.body.split()[1])

    @property
    def random(self) -> str:
        return self.body.split()[2]


@dataclass
class RealHost:
    """One host, one edge, and a stand-in for control."""

    images: Path
    folder: Path
    http_port: int
    link_port: int
    control: FakeControl
    machine_memory: str = "auto"
    edge: subprocess.Popen[bytes] | None = None
    agent: subprocess.Popen[bytes] | None = None
    generation: int = 0
    machines: list[MachineId] = field(default_factory=list)

    @property
    def instance(self) -> str:
        return hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:6]

    @property
    def host_dir(self) -> Path:
        return self.folder / "host"

    @property
    def edge_socket(self) -> Path:
        return self.folder / "edge.sock"

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "BURROW_INSTANCE": self.instance,
            "BURROW_VAR": str(self.folder),
            "BURROW_EDGE_HTTP": f"127.0.0.1:{self.http_port}",
            "BURROW_EDGE_LINK": f"127.0.0.1:{self.link_port}",
            "BURROW_EDGE_CONTROL_SOCKET": str(self.edge_socket),
            "BURROW_EDGE_STATE": str(self.folder / "edge"),
            "BURROW_LINK_TOKEN_FILE": str(self.folder / "link_token"),
            "BURROW_PREVIEW_DOMAIN": "localhost",
            "BURROW_HOST_ID": "host-0",
            "BURROW_HOST_DIR": str(self.host_dir),
            "BURROW_EDGE_LINKS": f"127.0.0.1:{self.link_port}",
            "BURROW_CONTROL_URL": self.control.url,
            "BURROW_HOST_TOKEN_FILE": str(self.folder / "link_token"),
            "BURROW_IMAGES": str(self.images),
            "BURROW_NAMESERVERS": "192.0.2.53",
            "BURROW_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt",
            "BURROW_BUILDER_ENV": str(self.folder / "builder.json"),
            "BURROW_ACCELERATOR": os.environ.get("BURROW_ACCELERATOR", "tcg"),
            "BURROW_MACHINE_MEMORY": self.machine_memory,
        }

    def start_edge(self) -> None:
        self.edge = self._start("tunnel", self.folder / "edge.log")
        self._until(self.edge_socket.exists, "the edge's control socket")

    def start_agent(self) -> None:
        self.agent = self._start("hosts", self.folder / "agent.log")
        self._until(self._answers, "the agent's health through the edge")

    def kill_agent(self) -> None:
        """kill -9: nothing is tidied up."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait(10)

    def stop_agent(self) -> int:
        """SIGTERM; the exit code."""
        assert self.agent is not None
        self.agent.terminate()
        return self.agent.wait(20)

    def add_image(self, files: dict[str, str]) -> ImageDigest:
        """A release image with these files below /app."""
        with tempfile.TemporaryDirectory() as temporary:
            app = Path(temporary) / "tree" / "app"
            app.mkdir(parents=True)
            for name, text in files.items():
                (app / name).write_text(text)
            image = Path(temporary) / "image"
            subprocess.run(["mkfs.erofs", "--quiet", str(image), str(app.parent)], check=True, capture_output=True)
            digest = hashlib.sha256(image.read_bytes()).hexdigest()
            place = self.host_dir / "images" / digest
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(image, place)
        return ImageDigest(digest)

    def spec(
        self, image: ImageDigest, *, machine_id: MachineId = ID, command: str = "exec python3 app.py"
    ) -> MachineSpec:
        return MachineSpec(
            machine_id=machine_id,
            app="blog",
            release=1,
            image=image,
            process=Process(command),
            size=Size(memory_mib=256, disk_mib=256),
            policy=Policy(idle_period_s=3600, suspend_after_s=3600),
        )

    def call(self, method: str, path: str, message: object = None, *, timeout_s: float = 130) -> tuple[int, object]:
        """One request of control's, through the edge."""
        body = None if message is None else encode(message)
        status, answer = EdgeClient([self.edge_socket]).request_host("host-0", method, path, body, timeout_s=timeout_s)
        return status, json.loads(answer)

    def report(self, machine_id: MachineId = ID, *, wait_s: int = 0) -> MachineReport:
        status, answer = self.call("GET", f"/v1/machines/{machine_id}?wait_s={wait_s}")
        assert status == 200, answer
        return from_json(MachineReport, answer)

    def boot(self, spec: MachineSpec) -> MachineReport:
        """Create it, wait for the verdict, and let the edge know it."""
        status, answer = self.call("PUT", f"/v1/machines/{spec.machine_id}", spec)
        assert status in (200, 202), answer
        self.machines.append(spec.machine_id)
        self.generation += 1
        EdgeClient([self.edge_socket]).publish_routes(
            self.generation, [Route(APP_HOST, str(m), "host-0", "blog") for m in self.machines[-1:]]
        )
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < deadline:
            report = self.report(spec.machine_id, wait_s=30)
            if str(report.state) not in ("booting", "stopped"):
                return report
        raise AssertionError(f"no verdict: {report}")

    def sleep(self, depth: SleepDepth) -> MachineReport:
        status, answer = self.call("POST", f"/v1/machines/{ID}/sleep", SleepRequest(depth))
        assert status == 200, answer
        report = from_json(MachineReport, answer)
        assert str(report.state) == str(depth), report
        return report

    def get(self, *, method: str = "GET", body: bytes | None = None, timeout_s: float = 60) -> Answer:
        """One visitor's request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout_s)
        asked_at, began = time.time(), time.monotonic()
        try:
            connection.request(method, "/", body=body, headers={"Host": f"{APP_HOST}:{self.http_port}"})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        finally:
            connection.close()
        return Answer(response.status, text, time.monotonic() - began, asked_at)

    def qemus(self) -> list[int]:
        """The pids of this host's VMMs."""
        return [found.record.pid for found in vmm_processes(self.instance)]

    def namespaces(self) -> list[str]:
        return [p.name for p in Path("/run/netns").glob(f"{namespace_prefix(self.instance)}*")]

    def log(self) -> str:
        return (self.folder / "agent.log").read_text(errors="replace")

    def access_lines(self) -> list[dict[str, Any]]:
        """The edge's access log."""
        lines = [json.loads(line) for line in (self.folder / "edge.log").read_text().splitlines()]
        return [line for line in lines if line["event"] == "request"]

    def _answers(self) -> bool:
        with contextlib.suppress(EdgeUnavailable, HostUnavailable, OSError):
            return EdgeClient([self.edge_socket]).request_host("host-0", "GET", "/v1/health", timeout_s=5)[0] == 200
        return False

    def _start(self, module: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen([sys.executable, "-m", module], env=self.env(), cwd=ROOT, stdout=out, stderr=out)

    def _until(self, true: object, what: str) -> None:
        assert callable(true)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not true():
            for process in (self.edge, self.agent):
                if process is not None and process.poll() not in (None, -signal.SIGKILL):
                    raise AssertionError(f"{process.args!r} ended with {process.returncode}:\n{self._logs()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} within {START_TIMEOUT_S:.0f} s:\n{self._logs()}")
            time.sleep(0.05)

    def _logs(self) -> str:
        return "\n".join(p.read_text(errors="replace")[-3000:] for p in self.folder.glob("*.log"))

    def end(self) -> None:
        """Everything goes: machines first, by the agent, so that its own tidying is what is used."""
        if self.agent is not None and self.agent.poll() is None:
            for machine_id in self.machines:
                with contextlib.suppress(EdgeUnavailable, HostUnavailable, OSError):
                    self.call("DELETE", f"/v1/machines/{machine_id}")
        for process in (self.agent, self.edge):
            if process is not None and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                if process.poll() is None:
                    process.kill()
                    process.wait(10)
        asyncio.run(_sweep(self.instance, self.folder))
        shutil.rmtree(self.folder, ignore_errors=True)


class FakeControl:
    """Takes journals over HTTP; can be down."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.down = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                batch = decode(EventBatch, self.rfile.read(int(self.headers["Content-Length"])))
                if outer.down:
                    self.send_error(503)
                    return
                known = {e.event_id for e in outer.events}
                outer.events.extend(e for e in batch.events if e.event_id not in known)
                body = encode(EventAck(batch.events[-1].seq))
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@contextmanager
def real_host(images: Path, *, machine_memory: str = "auto") -> Iterator[RealHost]:
    """A host with nothing on it, edge and agent running."""
    folder = Path(tempfile.mkdtemp(prefix="bwh-"))
    (folder / "link_token").write_text(TOKEN)
    (folder / "builder.json").write_text("{}")
    host = RealHost(images, folder, _free_port(), _free_port(), FakeControl(), machine_memory)
    try:
        host.start_edge()
        host.start_agent()
        yield host
    finally:
        host.end()
        host.control.close()


async def _sweep(instance: str, folder: Path) -> None:
    """Whatever a test that failed left."""
    from hosts.net.network import Network  # noqa: PLC0415 - needs root, as does whoever comes here

    network = Network(instance, ("192.0.2.53",))
    for found in vmm_processes(instance):
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.record.pid, signal.SIGKILL)
    await asyncio.sleep(0.2)
    await network.reclaim(frozenset())
    network.close()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
