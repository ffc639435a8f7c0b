"""What no machine and no build can be made of is refused by the name of its field."""

from __future__ import annotations

import dataclasses

import pytest

from hosts.agent.admission import BadSpec, check_build, check_machine, check_policy
from hosts.wire.allowlist import AllowedName
from hosts.wire.commands import BuildSpec
from hosts.wire.spec import Egress, MachineSpec, Policy, Process, Size
from tests.hosts.agent.rig import spec


def with_process(**changes: object) -> MachineSpec:
    return spec(process=dataclasses.replace(Process("python app.py"), **changes))  # type: ignore[arg-type]


def with_size(**changes: object) -> MachineSpec:
    return spec(size=dataclasses.replace(Size(), **changes))  # type: ignore[arg-type]


def test_a_plain_spec_is_fine() -> None:
    check_machine(spec())
    check_machine(with_process(env=(("A_1", "ä\nb"),), health_path="/healthz?x=1", port=1))


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (spec("x" * 32), "machine_id"),
        (spec(app="../etc"), "app"),
        (spec(app=""), "app"),
        (spec(image="../" + "a" * 61), "image"),
        (spec(image="A" * 64), "image"),
        (with_size(memory_mib=0), "memory_mib"),
        (with_size(memory_mib=-256), "memory_mib"),
        (with_size(memory_mib=10**9), "memory_mib"),
        (with_size(disk_mib=1), "disk_mib"),
        (with_size(vcpus=0), "vcpus"),
        (with_process(command=""), "command"),
        (with_process(command="a\0b"), "command"),
        (with_process(command="x" * 40_000), "command"),
        (with_process(cwd="app"), "cwd"),
        (with_process(port=0), "port"),
        (with_process(port=65_536), "port"),
        (with_process(health_path="healthz"), "health_path"),
        (with_process(health_path="/a b"), "health_path"),
        (with_process(health_path="/a\r\nX: y"), "health_path"),
        (with_process(env=(("1A", "x"),)), "env"),
        (with_process(env=(("A", "x\0"),)), "env"),
        (with_process(env=(("A", "x" * 300_000),)), "env"),
        (with_process(env=tuple((f"A{n}", "") for n in range(1001))), "env"),
        (spec(policy=Policy(0, 300)), "idle_period_s"),
        (spec(policy=Policy(60, -1)), "suspend_after_s"),
        (spec(policy=Policy(egress_allow=(AllowedName("a.example"),))), "only with egress allowlist"),
        (spec(policy=Policy(egress=Egress.ALLOWLIST, egress_allow=(AllowedName("A.example"),))), "normal form"),
        (spec(policy=Policy(egress=Egress.ALLOWLIST, egress_allow=(AllowedName("a.example", ()),))), "ports"),
        (spec(policy=Policy(egress=Egress.ALLOWLIST, egress_allow=(AllowedName("a.example"),) * 101)), "at most 100"),
    ],
)
def test_a_bad_value_is_refused_by_name(bad: MachineSpec, field: str) -> None:
    with pytest.raises(BadSpec, match=field):
        check_machine(bad)


def test_a_policy_of_a_century_is_refused() -> None:
    with pytest.raises(BadSpec, match="idle_period_s"):
        check_policy(Policy(10**10, 1))


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (BuildSpec("../x", "blog"), "build_id"),
        (BuildSpec("c" * 32, "Blog"), "app"),
        (BuildSpec("c" * 32, "blog", 0), "timeout_s"),
        (BuildSpec("c" * 32, "blog", 10**9), "timeout_s"),
    ],
)
def test_a_bad_build_is_refused_by_name(bad: BuildSpec, field: str) -> None:
    with pytest.raises(BadSpec, match=field):
        check_build(bad)
