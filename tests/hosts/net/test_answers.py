"""Bytes from a guest and messages from upstream, hostile ones included; and which addresses are public."""

from __future__ import annotations

import contextlib

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hosts.net import answers
from hosts.net.answers import Addresses, NotAQuestion


def question(name: str = "a.example") -> answers.Question:
    return answers.read(dns.message.make_query(name, "A").to_wire())


def upstream(*records: tuple[str, int, str, str]) -> dns.message.Message:
    message = dns.message.make_response(dns.message.make_query("a.example", "A"))
    for owner, ttl, kind, text in records:
        message.answer.append(dns.rrset.from_text(owner, ttl, "IN", kind, text))
    return dns.message.from_wire(message.to_wire())


@given(st.binary(max_size=600))
def test_whatever_the_bytes_are_it_is_a_question_or_none(data: bytes) -> None:
    with contextlib.suppress(NotAQuestion):
        answers.read(data)


def test_names_are_lower_case_without_the_dot() -> None:
    assert question("A.Example.").name == "a.example"


def test_an_answer_or_another_class_is_no_question() -> None:
    answer = dns.message.make_query("a.example", "A")
    answer.flags |= dns.flags.QR
    for message in (answer, dns.message.make_query("a.example", "A", "CH")):
        with pytest.raises(NotAQuestion):
            answers.read(message.to_wire())


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.0.1", "172.31.255.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::ffff:10.0.0.1", "::ffff:8.8.8.8",
        "fd00:ec2::254", "fe80::1", "64:ff9b::a00:1", "2002:a00:1::", "2001:db8::1", "0x7f.1", "2130706433", "",
    ],
)  # fmt: skip
def test_what_is_not_public(address: str) -> None:
    assert not answers.is_public(address)


def test_what_is_public() -> None:
    assert answers.is_public("198.51.100.1")


def test_ttls_are_clamped_and_the_chain_has_the_shortest() -> None:
    assert answers.addresses_in(upstream(("a.example.", 0, "A", "198.51.100.1")), question()) == Addresses(
        ("198.51.100.1",), 5
    )
    chain = upstream(("a.example.", 30, "CNAME", "b.example."), ("b.example.", 10**6, "A", "198.51.100.1"))
    assert answers.addresses_in(chain, question()) == Addresses(("198.51.100.1",), 30)


def test_a_long_chain_and_a_refusal_are_no_answer() -> None:
    links = [(f"{n}.example.", 30, "CNAME", f"{n + 1}.example.") for n in range(20)]
    assert answers.addresses_in(upstream(("a.example.", 30, "CNAME", "0.example."), *links), question()) is None
    refused = upstream()
    refused.set_rcode(dns.rcode.REFUSED)
    assert answers.addresses_in(refused, question()) is None


def test_a_reply_fits_a_datagram() -> None:
    many = Addresses(tuple(f"198.51.100.{n}" for n in range(16)), 60)
    assert len(answers.to_wire(answers.reply(question(), many), answers.UDP_MAX_BYTES)) <= 512
    long = question(".".join(["x" * 61] * 4))
    wire = answers.to_wire(answers.reply(long, many), answers.UDP_MAX_BYTES)
    assert len(wire) <= 512
    assert dns.message.from_wire(wire).flags & dns.flags.TC, "and says so where it does not"


def test_what_is_asked_upstream_is_made_anew() -> None:
    asked = question("A.eXample")
    query = answers.to_ask(asked)
    assert query.id != asked.message.id or answers.to_ask(asked).id != query.id
    assert query.question[0].name.to_text() == "a.example."
