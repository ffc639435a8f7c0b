"""Going down: whose memory is kept, and in which order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

import pytest

from deploy.box import down, hostapi
from deploy.box.instance import Instance
from deploy.box.say import Say

ID = "1" * 32


class Agent(ThreadingMixIn, UnixStreamServer):
    """The agent's own socket, with one machine whose state is the test's."""

    daemon_threads = True
    asked: list[str]
    states: list[str]


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Agent

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {self.path}")
        state = self.server.states.pop(0) if len(self.server.states) > 1 else self.server.states[0]
        report = {"machine_id": ID, "state": state}
        data = json.dumps({"machines": [report]} if self.path == "/v1/machines" else report).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer  # noqa: N815 - the base class's names

    def address_string(self) -> str:
        return "root"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent."""


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setattr(Instance, "run", tmp_path / "run")
    made = Instance.of(tmp_path)
    (made.run / "host").mkdir(parents=True)
    return made


@pytest.fixture
def agent(instance: Instance) -> Iterator[Agent]:
    with Agent(str(instance.run / "host/agent.sock"), Answer) as server:
        server.asked, server.states = [], ["running"]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_running_machine_is_suspended_through_the_agents_own_socket(instance: Instance, agent: Agent) -> None:
    down._suspend_machines(instance, Say())
    assert agent.asked == ["GET /v1/machines", f"POST /v1/machines/{ID}/sleep"]


def test_a_machine_that_boots_is_waited_for(instance: Instance, agent: Agent) -> None:
    agent.states = ["booting", "running"]
    down._suspend_machines(instance, Say())
    assert agent.asked[1:] == [f"GET /v1/machines/{ID}?wait_s=30", f"POST /v1/machines/{ID}/sleep"]


def test_one_that_fails_to_boot_is_left_alone(instance: Instance, agent: Agent) -> None:
    agent.states = ["booting", "failed"]
    down._suspend_machines(instance, Say())
    assert len(agent.asked) == 2


def test_a_silent_agent_is_no_reason_not_to_go_down(instance: Instance) -> None:
    down._suspend_machines(instance, Say())
    with pytest.raises(hostapi.HostSilent):
        hostapi.request_directly(instance, "GET", "/v1/health", timeout_s=1)


def test_the_edge_stops_before_a_machine_is_put_to_sleep(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Supervisor:
        def __init__(self, _: Instance) -> None: ...

        def pid(self) -> int:
            return 1

        def stop(self, names: list[str]) -> None:
            order.extend(names)

        def shut_down(self) -> None:
            order.append("all")

    monkeypatch.setattr(down, "Supervisor", Supervisor)
    monkeypatch.setattr(down, "_suspend_machines", lambda instance, say: order.append("machines"))
    down._stop(instance, Say(), keep_memory=True)
    assert order.index("edge") < order.index("machines") < order.index("host")
