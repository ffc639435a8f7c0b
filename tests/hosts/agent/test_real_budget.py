"""A real host with memory for one machine: who sleeps makes room, who runs is left alone, and the rest is refused."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

import pytest

from hosts.agent.budget import VMM_MIB
from hosts.wire.commands import SleepDepth, Start, WakeRequest
from hosts.wire.events import Cause
from hosts.wire.spec import MachineId
from tests.hosts.agent.real_agent import COUNTER_APP, ID, RealHost, real_host
from tests.hosts.real_host import MEMORY_MIB, guest_images

pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.timeout(400)]

OTHER, THIRD = MachineId("2" * 32), MachineId("3" * 32)


def refusal(answer: object) -> tuple[str, str]:
    """Code and message of an ErrorBody."""
    body = cast("dict[str, str]", answer)
    return body["code"], body["message"]


def states(host: RealHost) -> dict[MachineId, str]:
    return {machine: str(host.report(machine).state) for machine in (ID, OTHER)}


def test_a_sleeping_machine_makes_room_and_a_running_one_never() -> None:
    with real_host(guest_images(), machine_memory=str(MEMORY_MIB + VMM_MIB + 10)) as host:
        image = host.add_image({"app.py": COUNTER_APP})
        assert str(host.boot(host.spec(image)).state) == "running"
        host.sleep(SleepDepth.PAUSED)
        assert str(host.boot(host.spec(image, machine_id=OTHER)).state) == "running"
        assert states(host) == {ID: "suspended", OTHER: "running"}
        assert len(host.qemus()) == 1

        status, answer = host.call("PUT", f"/v1/machines/{THIRD}", host.spec(image, machine_id=THIRD))
        assert (status, refusal(answer)[0]) == (HTTPStatus.INSUFFICIENT_STORAGE, "host:full"), answer
        status, answer = host.call("POST", f"/v1/machines/{ID}/wake", WakeRequest(Cause.API))
        code, message = refusal(answer)
        assert (status, code) == (HTTPStatus.SERVICE_UNAVAILABLE, "host:full"), answer
        assert "memory is full: 352 MiB wanted, 10 of 362 MiB free" in message
        assert states(host) == {ID: "suspended", OTHER: "running"}

        host.call("DELETE", f"/v1/machines/{OTHER}")
        status, answer = host.call("POST", f"/v1/machines/{ID}/wake", WakeRequest(Cause.API))
        assert status == HTTPStatus.OK, answer
        last_start = host.report(ID).last_start
        assert last_start is not None
        assert last_start.start is Start.RESUME, "its memory was kept all the while"
