"""What a spec must be before anything is made of it: the codec checks types, this checks values.

Ids and digests become parts of paths here, so their form is a matter of safety, not of taste.
"""

from __future__ import annotations

import re

from hosts.agent.record import is_machine_id
from hosts.wire.allowlist import ALLOW_MAX, checked
from hosts.wire.commands import BuildSpec
from hosts.wire.spec import Egress, MachineSpec, Policy

MEMORY_MIB = range(64, 65_537)  # of a machine
DISK_MIB = range(64, 1_048_577)  # of a machine
VCPUS = range(1, 33)
PORTS = range(1, 65_536)
PERIOD_S = range(31 * 24 * 3600)  # idle period, and how long paused before suspended
BUILD_TIMEOUT_S = range(1, 4 * 3600 + 1)  # that a build may be given
MAX_COMMAND_CHARS = 32 * 1024  # an app's command
MAX_VARIABLES = 1000  # of an app's environment
MAX_VARIABLES_CHARS = 256 * 1024  # all of them together

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BUILD_ID = re.compile(r"[0-9a-f]{32}")
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEALTH_PATH = re.compile(r"(?:/[\x21-\x7e]*)?")


class BadSpec(ValueError):  # noqa: N818 - reads as the fact it states
    """A value no machine or build can have; the text names the field and the rule."""


def check_machine(spec: MachineSpec) -> None:
    """BadSpec unless a machine can be made of it."""
    _need(is_machine_id(spec.machine_id), "machine_id: 32 lower-case hex digits")
    _need(_SLUG.fullmatch(spec.app) is not None, "app: a slug of lower-case letters, digits and dashes")
    _need(_DIGEST.fullmatch(spec.image) is not None, "image: 64 lower-case hex digits")
    _need(spec.size.memory_mib in MEMORY_MIB, f"size.memory_mib: {MEMORY_MIB.start} to {MEMORY_MIB.stop - 1}")
    _need(spec.size.disk_mib in DISK_MIB, f"size.disk_mib: {DISK_MIB.start} to {DISK_MIB.stop - 1}")
    _need(spec.size.vcpus in VCPUS, f"size.vcpus: {VCPUS.start} to {VCPUS.stop - 1}")
    process = spec.process
    _need(0 < len(process.command) <= MAX_COMMAND_CHARS and "\0" not in process.command, "process.command: some text")
    _need(process.cwd.startswith("/") and "\0" not in process.cwd, "process.cwd: an absolute path")
    _need(process.port in PORTS, "process.port: 1 to 65535")
    _need(
        _HEALTH_PATH.fullmatch(process.health_path) is not None,
        "process.health_path: empty, or a path of visible ASCII",
    )
    _need(len(process.env) <= MAX_VARIABLES, f"process.env: at most {MAX_VARIABLES} variables")
    _need(sum(len(k) + len(v) for k, v in process.env) <= MAX_VARIABLES_CHARS, "process.env: too much text")
    for name, value in process.env:
        _need(
            _VARIABLE.fullmatch(name) is not None and "\0" not in value, f"process.env: {name[:60]!r} is not a variable"
        )
    check_policy(spec.policy)


def check_policy(policy: Policy) -> None:
    """BadSpec unless it can be followed."""
    _need(policy.idle_period_s in PERIOD_S[1:], "policy.idle_period_s: at least 1 s, at most a month")
    _need(policy.suspend_after_s in PERIOD_S, "policy.suspend_after_s: 0 s to a month")
    _need(len(policy.egress_allow) <= ALLOW_MAX, f"policy.egress_allow: at most {ALLOW_MAX} names")
    _need(
        not policy.egress_allow or policy.egress is Egress.ALLOWLIST,
        "policy.egress_allow: only with egress allowlist",
    )
    for allowed in policy.egress_allow:
        try:
            checked(allowed)
        except ValueError as e:
            raise BadSpec(f"policy.egress_allow: {e}") from None


def check_build(spec: BuildSpec) -> None:
    """BadSpec unless it can be built."""
    _need(is_build_id(spec.build_id), "build_id: 32 lower-case hex digits")
    _need(_SLUG.fullmatch(spec.app) is not None, "app: a slug of lower-case letters, digits and dashes")
    _need(spec.timeout_s in BUILD_TIMEOUT_S, f"timeout_s: 1 to {BUILD_TIMEOUT_S.stop - 1}")


def is_build_id(text: str) -> bool:
    """Whether `text` may name a build's folder."""
    return _BUILD_ID.fullmatch(text) is not None


def _need(true: bool, rule: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not true:
        raise BadSpec(rule)
