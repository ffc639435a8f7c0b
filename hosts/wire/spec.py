"""What control asks a host to run: a machine's specification and its policy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from hosts.wire.allowlist import AllowedName

MachineId = NewType("MachineId", str)  # 32 lower-case hex digits (a UUID without dashes)
ImageDigest = NewType("ImageDigest", str)  # sha256 of the image file, 64 lower-case hex digits


class Egress(StrEnum):
    """What a machine may reach by itself."""

    NONE = "none"  # no link out at all
    ALLOWLIST = "allowlist"  # the addresses that the names in `egress_allow` resolve to, on their ports
    OPEN = "open"  # the internet minus private, link-local and metadata ranges and minus the host


@dataclass(frozen=True, slots=True)
class Policy:
    """When a machine sleeps and what it may reach; may change while the machine exists."""

    idle_period_s: int = 60  # nothing in flight for this long -> paused
    suspend_after_s: int = 300  # paused for this long -> suspended
    egress: Egress = Egress.NONE
    egress_allow: tuple[AllowedName, ...] = ()  # only with `allowlist`


@dataclass(frozen=True, slots=True)
class Size:
    """A machine size: a name with a price, and what it gives."""

    name: str = "small"
    memory_mib: int = 256
    vcpus: int = 1
    disk_mib: int = 1024  # the writable disk (sparse)


@dataclass(frozen=True, slots=True)
class Process:
    """The app's process inside the guest."""

    command: str  # run by `sh -c` in `cwd` as the unprivileged user `app`
    cwd: str = "/app"
    env: tuple[tuple[str, str], ...] = ()  # PORT and HOST are set by the guest agent as well
    port: int = 8080  # the value of PORT: where the app is asked, not trusted, to listen
    health_path: str = ""  # "" = any HTTP answer to GET / is healthy; else it must answer 2xx or 3xx


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """Everything that makes a machine; immutable but for `policy`. A new release is a new machine."""

    machine_id: MachineId
    app: str  # the app's slug: for logs, metrics and the guest's hostname; never part of a path
    release: int
    image: ImageDigest  # the release image, present on the host
    process: Process
    size: Size = Size()
    policy: Policy = Policy()
