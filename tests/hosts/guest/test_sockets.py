"""Finding the web server among what an app listens on."""

from __future__ import annotations

import pytest

from hosts.guest.agent.sockets import Listener, choose, listeners, loopback_only

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST = "00000000:00000000 00:00000000 00000000"


def row(local: str, state: str = "0A", uid: int = 1000) -> str:
    return f"   0: {local} 00000000:0000 {state} {REST}  {uid}        0 123 1 0000000000000000 100 0 0 10 0\n"


def found(*rows: str, six: str = "") -> list[str]:
    return [repr(s) for s in listeners([HEAD + "".join(rows), HEAD + six], 1000)]


def test_addresses_are_read_as_the_kernel_writes_them() -> None:
    assert found(row("0100007F:1F90"), row("00000000:0050")) == ["0.0.0.0:80", "127.0.0.1:8080"]


def test_ipv6_addresses() -> None:
    loopback = row("00000000000000000000000001000000:1F90")
    anywhere = row("00000000000000000000000000000000:0BB8")
    mapped = row("0000000000000000FFFF00000100007F:0BB9")
    assert found(six=loopback + anywhere + mapped) == [":::3000", "127.0.0.1:3001", "::1:8080"]


def test_only_the_apps_own_listening_sockets_count() -> None:
    assert found(row("00000000:0050", state="01"), row("00000000:0051", uid=0)) == []


def test_a_table_cut_short_is_no_error() -> None:
    assert listeners([HEAD + "   0: 0100007F", ""], 1000) == []


def at(*names: str) -> list[Listener]:
    return [Listener(a, int(p)) for a, _, p in (n.rpartition(":") for n in names)]


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (["0.0.0.0:3000", "0.0.0.0:8080"], 8080),
        (["127.0.0.1:8080", "0.0.0.0:3000"], 8080),
        (["0.0.0.0:5000", "0.0.0.0:3000"], 3000),
        (["127.0.0.1:3000", "0.0.0.0:5000"], 5000),
        (["127.0.0.1:9229", "127.0.0.1:9300"], 9300),
        (["127.0.0.1:9229"], 9229),
    ],
)
def test_the_web_server_is_chosen(there: list[str], chosen: int) -> None:
    socket = choose(at(*there), 8080)
    assert socket is not None
    assert socket.port == chosen


def test_nothing_listens_nothing_is_chosen() -> None:
    assert choose([], 8080) is None


def test_a_port_open_to_the_outside_as_well_needs_no_forward() -> None:
    assert loopback_only(at("127.0.0.1:80", "0.0.0.0:80", "::1:81", "127.0.0.1:82")) == {81: "::1", 82: "127.0.0.1"}
