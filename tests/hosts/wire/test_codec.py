"""JSON to wire types and back: strict about what is known, indifferent to the rest, and equal to the golden bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.wire.allowlist import AllowedName
from hosts.wire.codec import WireError, decode, encode, from_json
from hosts.wire.commands import (
    BuildPhase,
    BuildReport,
    BuildSpec,
    BuiltImage,
    ErrorBody,
    Failure,
    MachineReport,
    OutboundName,
    OutboundNames,
    Outcome,
    SleepDepth,
    SleepRequest,
    Socket,
    Start,
    StartReport,
    Step,
    WakeRequest,
)
from hosts.wire.events import Cause, EndCause, Event, EventAck, EventBatch, EventKind
from hosts.wire.manifest import MANIFEST_FORMAT, FileStamp, Manifest
from hosts.wire.spec import Egress, ImageDigest, MachineId, MachineSpec, Policy, Process, Size
from hosts.wire.states import MachineState
from hosts.wire.wakes import WakeTrace

GOLDEN = Path(__file__).parents[2] / "golden" / "hosts"

ID = MachineId("0123456789abcdef0123456789abcdef")
IMAGE = ImageDigest("a" * 64)
SESSION = "b" * 32

WAKE = Event(
    "9" * 32,
    3,
    EventKind.STATE,
    ID,
    1_700_000_002_345,
    state=MachineState.RUNNING,
    cause=Cause.REQUEST,
    wake=WakeTrace(
        at_ms=1_700_000_002_000,
        request="e1-42",
        waited=2,
        start=Start.RESUME,
        queue_ms=1.5,
        ready_ms=345.25,
        first_byte_ms=600.0,
        steps=(Step("load", 100.0), Step("contract", 243.75)),
    ),
)

MESSAGES: dict[str, object] = {
    "machine_spec": MachineSpec(
        machine_id=ID,
        app="blog",
        release=3,
        image=IMAGE,
        process=Process("python app.py", "/app", (("KEY", "vä lue"), ("EMPTY", "")), 8080, "/healthz"),
        size=Size("small", 256, 1, 1024),
        policy=Policy(60, 300, Egress.OPEN),
    ),
    "policy": Policy(5, 10, Egress.NONE),
    "policy_allowlist": Policy(
        5, 10, Egress.ALLOWLIST, (AllowedName("pypi.example"), AllowedName("*.example.org", (443, 8443)))
    ),
    "outbound_names": OutboundNames((OutboundName("pypi.example", False, 3, 1_700_000_000_000),)),
    "sleep_request": SleepRequest(SleepDepth.SUSPENDED),
    "wake_request": WakeRequest(Cause.API),
    "machine_report": MachineReport(
        machine_id=ID,
        state=MachineState.FAILED,
        since_ms=1_700_000_000_123,
        release=3,
        failure=Failure("check:not_listening", "listening", "nothing listens; 127.0.0.1:9 does"),
        port=None,
        listening=(Socket("127.0.0.1", 9),),
        log_tail=("one", "two"),
        in_flight=2,
        checkpoint=True,
        last_start=StartReport(Start.COLD_BOOT, Cause.DEPLOY, "", 1_700_000_000_000, (Step("kernel", 1500.25),)),
        disk_bytes=4096,
    ),
    "build_spec": BuildSpec("c" * 32, "blog", 900),
    "build_report": BuildReport(
        "c" * 32,
        BuildPhase.DONE,
        Outcome.SUCCEEDED,
        None,
        BuiltImage(IMAGE, 123, "python", "python app.py", "/app"),
        ("line",),
        1,
    ),
    "error_body": ErrorBody("machine:unknown", "no such machine"),
    "event_batch": EventBatch(
        "host-0",
        "d" * 32,
        (
            Event(
                "e" * 32,
                1,
                EventKind.STATE,
                ID,
                1_700_000_000_000,
                state=MachineState.STOPPED,
                code="memory:lost",
                detail="why",
            ),
            Event(
                "f" * 32,
                2,
                EventKind.SESSION_ENDED,
                ID,
                1_700_000_001_000,
                session_id=SESSION,
                started_at_ms=1_700_000_000_000,
                ended_at_ms=1_700_000_001_000,
                cause=Cause.REQUEST,
                end_cause=EndCause.IDLE,
            ),
        ),
    ),
    "event_batch_wake": EventBatch("host-0", "d" * 32, (WAKE,)),
    "event_ack": EventAck(2),
    "manifest": Manifest(
        MANIFEST_FORMAT,
        ID,
        4,
        1_700_000_000_000,
        "boot",
        "qemu 7.2",
        "1" * 64,
        "2" * 64,
        IMAGE,
        "3" * 64,
        72_000,
        FileStamp(1, 268_435_456, 2),
        "",
        FileStamp(3, 1_073_741_824, 4),
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_it_encodes_to_the_golden_bytes(name: str) -> None:
    assert encode(MESSAGES[name]) == (GOLDEN / f"{name}.json").read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("name", MESSAGES)
def test_the_golden_bytes_decode_to_it(name: str) -> None:
    message = MESSAGES[name]
    assert decode(type(message), (GOLDEN / f"{name}.json").read_bytes()) == message


def test_every_golden_file_is_of_a_known_message() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(MESSAGES)


def test_unknown_fields_are_ignored() -> None:
    assert decode(EventAck, b'{"acked_seq": 7, "a_newer_field": {"x": []}}') == EventAck(7)


def test_a_policy_from_before_the_allow_list_is_read() -> None:
    assert decode(Policy, b'{"idle_period_s":5,"suspend_after_s":10,"egress":"open"}') == Policy(5, 10, Egress.OPEN)


def test_absent_fields_take_their_defaults() -> None:
    assert decode(SleepRequest, b"{}") == SleepRequest(SleepDepth.PAUSED)


@pytest.mark.parametrize(
    ("cls", "text", "complaint"),
    [
        (EventAck, "[]", "wanted an object"),
        (EventAck, "{}", "EventAck.acked_seq: missing"),
        (EventAck, '{"acked_seq": "7"}', "wanted int, got str"),
        (EventAck, '{"acked_seq": 7.0}', "wanted int, got float"),
        (EventAck, '{"acked_seq": true}', "wanted int, got bool"),
        (EventAck, '{"acked_seq": null}', "wanted int, got NoneType"),
        (SleepRequest, '{"to": "hibernated"}', "is not one of"),
        (SleepRequest, '{"to": ["paused"]}', "is not one of"),
        (Process, '{"command": "x", "env": [["A"]]}', "wanted 2 items, got 1"),
        (Process, '{"command": "x", "env": {"A": "b"}}', "wanted a list"),
        (Process, '{"command": "x", "env": [["A", 1]]}', r"env\[0\]\[1\]: wanted str, got int"),
        (EventAck, "{", "not JSON"),
        (EventAck, "[" * 100_000, "not JSON"),
        (EventAck, b"\xff\xfe{}", "not JSON"),
    ],
)
def test_what_is_wrong_is_refused_by_the_name_of_the_field(cls: type, text: str | bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        decode(cls, text)


def test_a_whole_number_will_do_for_a_float() -> None:
    assert from_json(Step, {"name": "x", "ms": 3}) == Step("x", 3.0)


def test_what_is_not_a_wire_type_does_not_go_on_the_wire() -> None:
    with pytest.raises(TypeError, match="bytes does not go on the wire"):
        encode(b"raw")


def test_spec_page_names_every_error_code_the_api_answers_with() -> None:
    page = (Path(__file__).parents[3] / "hosts" / "wire" / "SPEC.md").read_text()
    for code in (
        "wire:bad_message",
        "machine:unknown",
        "machine:busy",
        "machine:not_running",
        "machine:spec_differs",
        "host:full",
    ):
        assert code in page
