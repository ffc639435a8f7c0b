"""Two checkouts never meet, and a box stays what it was on its first run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.box.instance import Instance
from deploy.box.ports import Ports, choose, configured_ports, is_free
from deploy.box.say import Problem

LONGEST_SOCKET_PATH = 107
LONGEST_INTERFACE_NAME = 15


def everything_is_free(port: int) -> bool:
    return True


def test_two_checkouts_share_no_name(tmp_path: Path) -> None:
    one, other = Instance.of(tmp_path / "one"), Instance.of(tmp_path / "other")
    assert one.id != other.id
    assert not {one.user, one.edge_user} & {other.user, other.edge_user}
    assert one.run != other.run
    assert not set(one.machine_uids) & set(other.machine_uids)


def test_a_link_to_a_checkout_is_the_same_box(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Instance.of(tmp_path / "link").id == Instance.of(tmp_path / "real").id


def test_names_fit_the_kernels_limits_however_deep_the_checkout_is(tmp_path: Path) -> None:
    deep = Instance.of(tmp_path / ("x" * 200) / ("y" * 200))
    assert len(str(deep.place / "var/run/.s.PGSQL.5432.lock")) <= LONGEST_SOCKET_PATH
    assert len(f"bw{deep.id}u9999") <= LONGEST_INTERFACE_NAME


@pytest.mark.parametrize("name", ["my box", "100%", "a;b", "quo'te", "häuschen", "a:b"])
def test_a_path_that_not_every_program_takes_is_one_clear_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(Problem, match="the path of this checkout has a "):
        Instance.of(tmp_path / name)


def test_machines_never_run_as_a_real_user(tmp_path: Path) -> None:
    uids = Instance.of(tmp_path).machine_uids
    assert uids.start >= 700_000_000
    assert uids.stop < 2**31


def test_the_first_run_takes_the_next_free_port() -> None:
    assert choose(configured={}, recorded=None, free=lambda port: port not in {8000, 8001, 8080}) == Ports(
        8002, 8081, 8090
    )


def test_no_port_is_given_out_twice() -> None:
    ports = choose(configured={"edge": 8000}, recorded=None, free=everything_is_free)
    assert ports == Ports(web=8001, edge=8000, link=8090)
    with pytest.raises(Problem, match="asked for twice"):
        choose(configured={"edge": 8000, "web": 8000}, recorded=None, free=everything_is_free)


def test_a_recorded_port_stays_though_a_lower_one_is_free_again() -> None:
    recorded = Ports(web=8005, edge=8085, link=8095)
    assert choose(configured={}, recorded=recorded, free=everything_is_free) == recorded


def test_a_recorded_port_that_somebody_else_took_is_one_clear_line() -> None:
    with pytest.raises(Problem, match=r"port 8005 of 127\.0\.0\.1 \(web\) is taken.*BURROW_WEB_PORT=N deploy/up") as e:
        choose(configured={}, recorded=Ports(web=8005), free=lambda port: port != 8005)
    assert "\n" not in str(e.value)


def test_our_own_running_service_does_not_count_as_somebody_else() -> None:
    recorded = Ports(web=8005, edge=8085, link=8095)
    ours = frozenset({"web", "edge", "link"})
    assert choose(configured={}, recorded=recorded, ours=ours, free=lambda _: False) == recorded


def test_a_configured_port_wins_over_the_recorded_one_and_must_be_free() -> None:
    recorded = Ports()
    assert choose(configured={"web": 9000}, recorded=recorded, free=everything_is_free).web == 9000
    with pytest.raises(Problem, match="port 9000"):
        choose(configured={"web": 9000}, recorded=recorded, ours=frozenset({"web"}), free=lambda port: port != 9000)


@pytest.mark.parametrize("text", ["0", "65536", "-1", "+80", "8_0", "eighty", "８０"])  # noqa: RUF001 - int() takes it
def test_a_port_that_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="BURROW_WEB_PORT must be a port number"):
        configured_ports({"BURROW_WEB_PORT": text})


def test_a_port_somebody_listens_on_is_not_free() -> None:
    import socket  # noqa: PLC0415 - only here

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_ports_are_recorded_once_for_all(tmp_path: Path) -> None:
    instance = Instance.of(tmp_path)
    assert instance.ports() is None
    settled = instance.settle_ports({"web": 48123}, ours=frozenset())
    assert settled.web == 48123
    assert instance.ports() == settled
    assert json.loads(instance.record.read_text())["id"] == instance.id


def test_a_moved_checkout_says_so(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    Instance.of(tmp_path / "old").settle_ports({"web": 48124}, ours=frozenset())
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(Problem, match=r"was made by a checkout at .*/old"):
        Instance.of(tmp_path / "new").ports()
