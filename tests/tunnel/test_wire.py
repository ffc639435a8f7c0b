"""The wire's golden bytes: what version 1 is, byte for byte. A change here is a new version of SPEC.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tunnel.wire import (
    CAUSED,
    MAX_LINE_BYTES,
    OPENED_OK,
    RAN,
    Activity,
    Code,
    HostHello,
    Kind,
    Need,
    NoWake,
    Open,
    Opened,
    OpenHello,
    Ping,
    Pong,
    Refused,
    Route,
    RoutesHello,
    RouteTable,
    ToHost,
    ToMachine,
    Welcome,
    WireError,
    check_opened,
    decode_control_hello,
    decode_host_hello,
    decode_message,
    decode_open,
    decode_published,
    decode_table,
    decode_welcome,
    encode_published,
    encode_refusal,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "tunnel"
SPEC = Path(__file__).parents[2] / "tunnel" / "wire" / "SPEC.md"

REFUSED = Refused(Code.WAKE_FAILED, "resume", "Zeit läuft \u202e ab\n")
TABLE = RouteTable(
    7,
    (
        Route("blog.localhost", "m-1", "host-0", "blog"),
        Route("x.y.example", "m-2", "host-1", "shop", may_wake=False),
    ),
)
NO_WAKE = NoWake(robots=True, methods=("HEAD", "OPTIONS"), paths=("/health", "/cron/*"))
POLICIES = RouteTable(8, (Route("blog.localhost", "m-1", "host-0", "blog", no_wake=NO_WAKE),))
WAITING = RouteTable(9, (Route("blog.localhost", "m-1", "host-0", "blog", waiting_page=True),))

LINK = HostHello(Kind.LINK, "host-0", "token", "session")
DATA = HostHello(Kind.DATA, "host-0", "token", "session")
OPEN_HOST = OpenHello(ToHost("host-0"))
OPEN_MACHINE = OpenHello(ToMachine("m-1", may_wake=True))

Case = tuple[str, bytes, Callable[[bytes], object], object]

MESSAGES: list[Case] = [
    ("hello-link", LINK.encode(), decode_host_hello, LINK),
    ("hello-data", DATA.encode(), decode_host_hello, DATA),
    ("hello-open-host", OPEN_HOST.encode(), decode_control_hello, OPEN_HOST),
    ("hello-open-machine", OPEN_MACHINE.encode(), decode_control_hello, OPEN_MACHINE),
    ("hello-routes", RoutesHello().encode(), decode_control_hello, RoutesHello()),
    ("welcome", Welcome("edge-0").encode(), decode_welcome, Welcome("edge-0")),
    ("open-host", Open(ToHost("host-0")).encode(), lambda x: decode_open(x, host="host-0"), Open(ToHost("host-0"))),
    (
        "open-machine",
        Open(ToMachine("m-1", may_wake=False), "r-1").encode(),
        lambda x: decode_open(x, host="host-0"),
        Open(ToMachine("m-1", may_wake=False), "r-1"),
    ),
    (
        "open-machine-quiet",
        Open(ToMachine("m-1", may_wake=False, quiet=True), "r-1").encode(),
        lambda x: decode_open(x, host="host-0"),
        Open(ToMachine("m-1", may_wake=False, quiet=True), "r-1"),
    ),
    (
        "open-machine-probe",
        Open(ToMachine("m-1", may_wake=False, quiet=True, probe=True)).encode(),
        lambda x: decode_open(x, host="host-0"),
        Open(ToMachine("m-1", may_wake=False, quiet=True, probe=True)),
    ),
    ("opened", OPENED_OK, check_opened, RAN),
    ("opened-wake", Opened(CAUSED, 345.25).encode(), check_opened, Opened(CAUSED, 345.25)),
    ("published", encode_published(7), decode_published, 7),
    ("table", TABLE.encode(), decode_table, TABLE),
    ("table-no-wake", POLICIES.encode(), decode_table, POLICIES),
    ("table-waiting-page", WAITING.encode(), decode_table, WAITING),
]
MESSAGES += [
    ("link-need", Need(16).encode(), decode_message, Need(16)),
    ("link-activity", Activity("m-1", 3).encode(), decode_message, Activity("m-1", 3)),
    ("link-activity-quiet", Activity("m-1", 3, quiet=True).encode(), decode_message, Activity("m-1", 3, quiet=True)),
    ("link-ping", Ping(5).encode(), decode_message, Ping(5)),
    ("link-pong", Pong(5).encode(), decode_message, Pong(5)),
]


@pytest.mark.parametrize(("name", "encoded", "decode", "value"), MESSAGES, ids=[m[0] for m in MESSAGES])
def test_messages_are_their_golden_bytes(
    name: str, encoded: bytes, decode: Callable[[bytes], object], value: object
) -> None:
    golden = (GOLDEN / f"{name}.json").read_bytes()
    assert encoded == golden
    assert decode(golden) == value


def test_a_refusal_is_its_golden_bytes_and_raises_itself() -> None:
    golden = (GOLDEN / "refusal.json").read_bytes()
    assert encode_refusal(REFUSED) == golden
    assert golden.isascii()
    for decode in (check_opened, decode_welcome, decode_published):
        with pytest.raises(Refused) as caught:
            decode(golden)
        assert (caught.value.code, caught.value.phase) == ("wake:failed", "resume")
        assert caught.value.message == REFUSED.message


@pytest.mark.parametrize(
    "said", ['"wake":"guessed","wake_ms":1', '"wake":"caused"', '"wake":"waited","wake_ms":-1', '"wake":1']
)
def test_an_open_stream_is_not_lost_for_what_only_a_log_wants(said: str) -> None:
    assert check_opened(b'{"v":1,"ok":true,%s}\n' % said.encode()) == RAN


def test_unknown_fields_and_unknown_link_messages_are_ignored() -> None:
    assert decode_host_hello(b'{"v":1,"hello":"link","host":"h","token":"t","session":"s","new":[1]}\n').host == "h"
    assert decode_message(b'{"m":"weather","t":"fine"}\n') is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{\n",
        b"[]\n",
        b"null\n",
        b'{"hello":"link","host":"h","token":"t","session":"s"}',
        b'{"v":2,"hello":"link","host":"h","token":"t","session":"s"}',
        b'{"v":true,"hello":"link","host":"h","token":"t","session":"s"}',
        b'{"v":1.0,"hello":"link","host":"h","token":"t","session":"s"}',
        b'{"v":1,"hello":"lonk","host":"h","token":"t","session":"s"}',
        b'{"v":1,"hello":"link","host":"","token":"t","session":"s"}',
        b'{"v":1,"hello":"link","host":7,"token":"t","session":"s"}',
        b'{"v":1,"hello":"link","host":"h","token":null,"session":"s"}',
        b'{"v":1,"hello":"link","host":"h","token":"\\ud800","session":"s"}',
        b'{"v":1,"hello":"link","host":"h","host":"g","token":"t","session":"s"}',
        b'{"v":1,"hello":"link","host":"h","token":"t","session":NaN}',
        b'{"v":1,"hello":"link","host":"' + b"h" * 2000 + b'","token":"t","session":"s"}',
        b'{"v":1,"hello":"link","host":"h","token":"t","session":"s","x":"' + b"x" * MAX_LINE_BYTES + b'"}',
        b"[" * 10_000,
        b"\xff\xfe\n",
    ],
)
def test_lines_that_are_no_hello_are_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        decode_host_hello(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"m":"need","n":-1}',
        b'{"m":"need","n":1e3}',
        b'{"m":"need","n":true}',
        b'{"m":"need","n":99999}',
        b'{"m":"activity","machine":"m"}',
        b'{"m":7}',
        b"{}",
    ],
)
def test_malformed_link_messages_are_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        decode_message(line)


def test_a_route_without_the_field_has_no_waiting_page_and_a_bad_one_refuses_the_table() -> None:
    row: dict[str, object] = {"hostname": "a.b", "machine": "m", "host": "h", "app": "a"}
    assert not decode_table(json.dumps({"generation": 1, "routes": [row]}).encode()).routes[0].waiting_page
    with pytest.raises(WireError, match="waiting_page"):
        decode_table(json.dumps({"generation": 1, "routes": [row | {"waiting_page": 1}]}).encode())


@pytest.mark.parametrize(
    "no_wake",
    [
        None,
        [],
        {"robots": 1},
        {"methods": "HEAD"},
        {"methods": [1]},
        {"paths": ["/a b"]},
        {"paths": ["/\u00e9"]},
        {"paths": [""]},
        {"paths": ["/" + "x" * 200]},
        {"paths": ["/"] * 65},
    ],
)
def test_a_bad_wake_policy_refuses_the_table(no_wake: object) -> None:
    row = {"hostname": "a.b", "machine": "m", "host": "h", "app": "a", "no_wake": {}}
    assert decode_table(json.dumps({"generation": 1, "routes": [row]}).encode()).routes[0].no_wake == NoWake()
    with pytest.raises(WireError, match="no_wake"):
        decode_table(json.dumps({"generation": 1, "routes": [{**row, "no_wake": no_wake}]}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"hostname": "A.localhost"},
        {"hostname": "a.localhost."},
        {"hostname": "a.localhost:80"},
        {"hostname": "a..localhost"},
        {"hostname": "-a.localhost"},
        {"hostname": "a_b.localhost"},
        {"hostname": "a" * 300},
        {"hostname": "a.localhost\n"},
        {"machine": ""},
        {"host": 7},
        {"may_wake": "yes"},
    ],
)
def test_one_bad_route_refuses_the_whole_table(change: dict[str, object]) -> None:
    good = {"hostname": "a.localhost", "machine": "m", "host": "h", "app": "a"}
    assert decode_table(json.dumps({"generation": 1, "routes": [good]}).encode()).routes[0].may_wake
    with pytest.raises(WireError):
        decode_table(
            json.dumps({"generation": 1, "routes": [good, {**good, "hostname": "b.localhost", **change}]}).encode()
        )


@pytest.mark.parametrize(
    "table",
    [
        {"generation": -1, "routes": []},
        {"generation": 1},
        {"generation": 1, "routes": {}},
        {"generation": 1, "routes": ["a"]},
        {"generation": 1, "routes": [{"hostname": "a", "machine": "m", "host": "h", "app": "a"}] * 2},
    ],
)
def test_a_malformed_table_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(WireError):
        decode_table(json.dumps(table).encode())


def test_the_spec_names_every_code() -> None:
    spec = SPEC.read_text(encoding="utf-8")
    assert [code for code in Code if f"`{code}`" not in spec] == []
