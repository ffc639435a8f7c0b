"""What a builder takes over from the server it runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.box.resolver import builder_settings, nameservers
from deploy.box.say import Problem


def test_servers_on_loopback_are_of_no_use_to_a_machine(tmp_path: Path) -> None:
    stub, real = tmp_path / "stub", tmp_path / "real"
    stub.write_text("# made by systemd-resolved\nnameserver 127.0.0.53\noptions edns0\n")
    real.write_text("nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver 192.0.2.2\n")
    assert nameservers({}, (stub, real)) == ("192.0.2.1", "192.0.2.2")


def test_no_reachable_server_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="BURROW_NAMESERVERS=address deploy/up"):
        nameservers({}, (tmp_path / "missing",))


def test_the_operators_word_wins(tmp_path: Path) -> None:
    assert nameservers({"BURROW_NAMESERVERS": "192.0.2.9, 192.0.2.8"}, ()) == ("192.0.2.9", "192.0.2.8")


def test_index_settings_come_from_files_and_the_environment_wins(tmp_path: Path) -> None:
    pip, npm = tmp_path / "pip.conf", tmp_path / "npmrc"
    pip.write_text(
        "[global]\nindex-url = https://pip.example/simple\nextra-index-url =\n  https://one.example\n  file:///x\n"
    )
    npm.write_text('fund=false\nregistry = "https://npm.example/"\n')
    assert builder_settings({"HTTPS_PROXY": "http://proxy.example:3128"}, (pip,), (npm,)) == {
        "PIP_INDEX_URL": "https://pip.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://one.example",
        "NPM_CONFIG_REGISTRY": "https://npm.example/",
        "HTTPS_PROXY": "http://proxy.example:3128",
    }
    assert (
        builder_settings({"PIP_INDEX_URL": "https://mine.example"}, (pip,), ())["PIP_INDEX_URL"]
        == "https://mine.example"
    )


def test_indexes_on_the_servers_own_disk_are_left_out(tmp_path: Path) -> None:
    pip = tmp_path / "pip.conf"
    pip.write_text("[global]\nextra-index-url = file:///srv/simple\n")
    assert builder_settings({}, (pip, tmp_path / "missing"), ()) == {}
