"""Control's side of a host agent's API (`hosts/wire/SPEC.md` section 1), through the tunnel. One call, one typed
answer or one error.

Every command is idempotent on the host, so callers repeat freely. Three ways to fail: `HostUnreachable` (nothing is
known about what happened: try again), `HostRefused` (the agent answered with an error code), and a WireError, which
is a bug.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import BinaryIO, TypeVar

from django.conf import settings

from control.errors import RetryLater
from hosts.wire import codec
from hosts.wire.commands import (
    BuildReport,
    BuildSpec,
    ErrorBody,
    MachineReport,
    OutboundName,
    OutboundNames,
    SleepDepth,
    SleepRequest,
    WakeRequest,
)
from hosts.wire.spec import MachineSpec, Policy
from tunnel.client import EdgeClient, EdgeUnavailable, HostUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MachineList:
    """The answer to GET /v1/machines."""

    machines: tuple[MachineReport, ...]


CALL_TIMEOUT_S = 30.0
WAIT_MARGIN_S = 10.0
WAIT_MAX_S = 30
UPLOAD_TIMEOUT_S = 120.0  # per wait for the host, not for the whole upload
WAKE_TIMEOUT_S = 90.0
SLEEP_TIMEOUT_S = 60.0
CHECKPOINT_TIMEOUT_S = 120.0
DELETE_TIMEOUT_S = 60.0


class HostUnreachable(RetryLater):
    """No edge, no link, or no answer in time."""


class HostRefused(Exception):  # noqa: N818 - reads as the fact it states
    """The agent answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message


@cache
def edge_client() -> EdgeClient:
    """The one client of this process; it holds addresses only, no connection."""
    return EdgeClient(settings.EDGE_CONTROL_SOCKETS)


class HostApi:
    """The API of one host agent."""

    def __init__(self, host: str) -> None:
        self.host = host

    # ---- machines

    def put_machine(self, spec: MachineSpec) -> MachineReport:
        """Make a machine and start to boot it."""
        return self._call(MachineReport, "PUT", f"/v1/machines/{spec.machine_id}", spec)

    def put_policy(self, machine_id: str, policy: Policy) -> MachineReport:
        """Change a machine's policy, awake or asleep."""
        return self._call(MachineReport, "PATCH", f"/v1/machines/{machine_id}/policy", policy)

    def machine(self, machine_id: str, *, wait_s: int = 0) -> MachineReport:
        """One machine; waits while it boots or resumes."""
        path = f"/v1/machines/{machine_id}?wait_s={min(wait_s, WAIT_MAX_S)}"
        return self._call(MachineReport, "GET", path, timeout_s=wait_s + WAIT_MARGIN_S)

    def machines(self) -> list[MachineReport]:
        """Every machine of the host."""
        return list(self._call(MachineList, "GET", "/v1/machines").machines)

    def sleep(self, machine_id: str, to: SleepDepth) -> MachineReport:
        """Put a machine to sleep; answers when it is."""
        return self._call(
            MachineReport, "POST", f"/v1/machines/{machine_id}/sleep", SleepRequest(to), timeout_s=SLEEP_TIMEOUT_S
        )

    def wake(self, machine_id: str) -> MachineReport:
        """Wake a machine; answers when it runs."""
        return self._call(
            MachineReport, "POST", f"/v1/machines/{machine_id}/wake", WakeRequest(), timeout_s=WAKE_TIMEOUT_S
        )

    def checkpoint(self, machine_id: str) -> MachineReport:
        """Keep a snapshot of the running machine."""
        path = f"/v1/machines/{machine_id}/checkpoint"
        return self._call(MachineReport, "POST", path, timeout_s=CHECKPOINT_TIMEOUT_S)

    def outbound(self, machine_id: str) -> tuple[OutboundName, ...]:
        """The names a machine asked its resolver for."""
        return self._call(OutboundNames, "GET", f"/v1/machines/{machine_id}/outbound").names

    def delete_machine(self, machine_id: str) -> None:
        """Nothing of the machine is left when this returns."""
        self._request("DELETE", f"/v1/machines/{machine_id}", None, DELETE_TIMEOUT_S)

    # ---- builds

    def put_build(self, spec: BuildSpec) -> None:
        """Declare a build."""
        self._request("PUT", f"/v1/builds/{spec.build_id}", codec.encode(spec), CALL_TIMEOUT_S)

    def put_source(self, build_id: str, tar: BinaryIO) -> None:
        """Send the source; the build starts."""
        self._request("PUT", f"/v1/builds/{build_id}/source", tar, UPLOAD_TIMEOUT_S)

    def build(self, build_id: str, *, after: int, wait_s: int) -> BuildReport:
        """The build's phase and its log from line `after`; waits for news."""
        path = f"/v1/builds/{build_id}?after={after}&wait_s={min(wait_s, WAIT_MAX_S)}"
        return self._call(BuildReport, "GET", path, timeout_s=wait_s + WAIT_MARGIN_S)

    def delete_build(self, build_id: str) -> None:
        """Cancel a build if it runs, and forget it."""
        self._request("DELETE", f"/v1/builds/{build_id}", None, DELETE_TIMEOUT_S)

    # ---- plumbing

    def _call(
        self, answer: type[T], method: str, path: str, message: object = None, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> T:
        body = None if message is None else codec.encode(message)
        return codec.decode(answer, self._request(method, path, body, timeout_s))

    def _request(self, method: str, path: str, body: bytes | BinaryIO | None, timeout_s: float) -> bytes:
        try:
            status, data = edge_client().request_host(self.host, method, path, body, timeout_s=timeout_s)
        except HostUnavailable as e:
            raise HostUnreachable(f"host {self.host}: {e.code} {e.message}") from e
        except EdgeUnavailable as e:
            raise HostUnreachable(f"no edge answers: {e}") from e
        if status < 300:
            return data
        try:
            error = codec.decode(ErrorBody, data)
        except codec.WireError:
            error = ErrorBody("host:bad_answer", f"status {status} without an error body")
        if status in (502, 504):
            raise HostUnreachable(f"host {self.host}: {error.code} {error.message}")
        raise HostRefused(status, error.code, error.message)
