"""Debian's packages: which systems, which packages, and the guards that stand while apt runs."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from deploy.box import packages
from deploy.box.say import Problem

BOOKWORM = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'


def test_debian_12_and_13_are_taken() -> None:
    packages.check_system(BOOKWORM, "x86_64")
    packages.check_system(BOOKWORM.replace("12", "13"), "x86_64")


@pytest.mark.parametrize(
    ("os_release", "machine", "says"),
    [
        (
            'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04"\n',
            "x86_64",
            "Ubuntu 24.04.*needs Debian 12 or 13",
        ),
        (BOOKWORM.replace("12", "11"), "x86_64", "needs Debian 12 or 13"),
        ("", "x86_64", "an unknown system"),
        (BOOKWORM, "aarch64", "this is aarch64"),
    ],
)
def test_another_system_is_refused_in_one_line(os_release: str, machine: str, says: str) -> None:
    with pytest.raises(Problem, match=says):
        packages.check_system(os_release, machine)


def test_lists_may_hold_comments(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# why\ngit\n\nnftables   # the firewall\n")
    assert packages.listed(tmp_path / "list") == ["git", "nftables"]


def test_what_is_installed_is_not_missing() -> None:
    assert packages.missing(["dpkg", "no-such-package-of-burrows"]) == ["no-such-package-of-burrows"]


def test_the_guards_forbid_services_and_go_away(tmp_path: Path) -> None:
    policy, cluster = tmp_path / "policy-rc.d", tmp_path / "postgresql-common/createcluster.d/burrow.conf"
    with packages.guards(policy, cluster):
        assert "exit 101" in policy.read_text()
        assert policy.stat().st_mode & stat.S_IXUSR
        assert "create_main_cluster = false" in cluster.read_text()
    assert not policy.exists()
    assert not cluster.exists()


def test_a_policy_that_was_there_comes_back_even_if_apt_fails(tmp_path: Path) -> None:
    policy, cluster = tmp_path / "policy-rc.d", tmp_path / "d/burrow.conf"
    policy.write_text("#!/bin/sh\nexit 0\n")
    policy.chmod(0o750)
    with pytest.raises(Problem, match="apt failed"), packages.guards(policy, cluster):
        raise Problem("apt failed")
    assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert stat.S_IMODE(policy.stat().st_mode) == 0o750


def test_a_guard_that_a_killed_run_left_is_not_taken_for_the_operators(tmp_path: Path) -> None:
    policy, cluster = tmp_path / "policy-rc.d", tmp_path / "d/burrow.conf"
    policy.write_text(f"#!/bin/sh\n{packages.MARK}\nexit 101\n")
    with packages.guards(policy, cluster):
        pass
    assert not policy.exists()
