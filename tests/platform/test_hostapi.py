"""What can go wrong between control and a host agent, told apart."""

from __future__ import annotations

import pytest

from control.hostapi import HostApi, HostRefused, HostUnreachable
from hosts.wire import codec
from hosts.wire.commands import ErrorBody
from tests.platform.fakehost import FakeEdge, FakeHost


def test_an_answer_is_typed(host: FakeHost) -> None:
    assert HostApi("host-0").machines() == []


def test_a_refusal_carries_its_code(host: FakeHost) -> None:
    with pytest.raises(HostRefused) as refused:
        HostApi("host-0").machine("f" * 32)
    assert (refused.value.status, refused.value.code) == (404, "machine:unknown")


def test_no_link_no_edge_and_a_bad_gateway_are_all_unreachable(edge: FakeEdge, host: FakeHost) -> None:
    api = HostApi("host-0")
    host.refuse["GET machines"] = (502, ErrorBody("tunnel:broken", "x"))
    with pytest.raises(HostUnreachable):
        api.machines()
    edge.linked = False
    with pytest.raises(HostUnreachable, match="tunnel:no_host"):
        api.machines()
    edge.stop()
    with pytest.raises(HostUnreachable, match="no edge"):
        api.machines()


def test_an_answer_that_is_not_of_the_wire_is_a_bug(host: FakeHost) -> None:
    host.refuse["GET machines"] = (200, {"machines": [{"state": "dreaming"}]})
    with pytest.raises(codec.WireError):
        HostApi("host-0").machines()


def test_an_error_without_a_body_still_has_a_code(host: FakeHost) -> None:
    host.refuse["GET machines"] = (500, {"oops": 1})
    with pytest.raises(HostRefused) as refused:
        HostApi("host-0").machines()
    assert refused.value.code == "host:bad_answer"
