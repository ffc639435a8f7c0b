"""What our resolver says and asks, as functions from bytes to values: no socket, no clock.

A guest's question is read as far as its one name and type and no further. Of an answer from upstream only the IPv4
addresses of the name that was asked are taken over, along its own CNAMEs, and of those only public ones; the guest
gets a message made anew from them. So nothing that a stranger's name server wrote reaches a guest but addresses.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from hosts.net.firewall import CLOSED_NETWORKS

QUERY_MAX_BYTES = 512  # of a machine's DNS question
UDP_MAX_BYTES = 512  # what every stub takes; we offer no EDNS
CNAMES_MAX = 8  # followed for one name
ADDRESSES_MAX = 16  # fit into UDP_MAX_BYTES behind any but the very longest name
TTL_MIN_S = 5  # an answer with a shorter life, 0 included, lives this long
TTL_MAX_S = 3600  # an answer with a longer life lives this long

_CLOSED = tuple(ipaddress.IPv4Network(network) for network in CLOSED_NETWORKS)


class NotAQuestion(ValueError):  # noqa: N818 - reads as the fact it states
    """Not a DNS question of one name."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a guest asks."""

    message: dns.message.Message
    name: str  # lower case, no dot at the end
    kind: dns.rdatatype.RdataType


@dataclass(frozen=True, slots=True)
class Addresses:
    """What a name may resolve to here."""

    found: tuple[str, ...]
    ttl_s: int
    exists: bool = True


def read(data: bytes) -> Question:
    """The question in a guest's bytes, or NotAQuestion."""
    if len(data) > QUERY_MAX_BYTES:
        raise NotAQuestion(f"{len(data)} bytes")
    try:
        message = dns.message.from_wire(data, question_only=True, ignore_trailing=True)
        if message.flags & dns.flags.QR or message.opcode() is not dns.opcode.QUERY or len(message.question) != 1:
            raise NotAQuestion("not one question")
        asked = message.question[0]
        if asked.rdclass != dns.rdataclass.IN:
            raise NotAQuestion("not of class IN")
        name = asked.name.to_text(omit_final_dot=True).lower()
    except (dns.exception.DNSException, ValueError) as e:
        raise NotAQuestion(str(e)) from None
    return Question(message, name, asked.rdtype)


def is_public(address: str) -> bool:
    """Whether an address may be reached by a machine at all. No IPv6 one is: neither native nor a mapped IPv4 one."""
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return not any(parsed in network for network in _CLOSED)


def addresses_in(answer: dns.message.Message, question: Question) -> Addresses | None:
    """The public addresses of the asked name; None where upstream has no answer to give (SERVFAIL, REFUSED, a loop)."""
    if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        return None
    owner, ttl = question.message.question[0].name, TTL_MAX_S
    for _ in range(CNAMES_MAX):
        alias = _records(answer, owner, dns.rdatatype.CNAME)
        if alias is None:
            break
        owner, ttl = alias[0].target, min(ttl, alias.ttl)
    else:
        return None
    records = _records(answer, owner, dns.rdatatype.A)
    if records is None:
        return Addresses((), TTL_MIN_S, exists=answer.rcode() is dns.rcode.NOERROR)
    public = [record.address for record in records if is_public(record.address)]
    return Addresses(tuple(public[:ADDRESSES_MAX]), max(TTL_MIN_S, min(ttl, records.ttl)))


def to_ask(question: Question) -> dns.message.QueryMessage:
    """The question for upstream, made anew: id, flags and case are ours."""
    return dns.message.make_query(dns.name.from_text(question.name), dns.rdatatype.A, use_edns=0, payload=1232)


def reply(question: Question, addresses: Addresses) -> dns.message.Message:
    """The guest's answer with these addresses."""
    message = _reply(question, dns.rcode.NOERROR if addresses.exists else dns.rcode.NXDOMAIN)
    if addresses.found:
        owner = question.message.question[0].name
        message.answer.append(dns.rrset.from_text_list(owner, addresses.ttl_s, "IN", "A", addresses.found))
    return message


def refusal(question: Question) -> dns.message.Message:
    """No such name, as far as this machine is concerned (decision 0012 says why not REFUSED)."""
    return _reply(question, dns.rcode.NXDOMAIN)


def failure(question: Question) -> dns.message.Message:
    """Ask again later."""
    return _reply(question, dns.rcode.SERVFAIL)


def to_wire(message: dns.message.Message, max_bytes: int) -> bytes:
    """The bytes, cut to whole records and marked as truncated where they do not fit."""
    return message.to_wire(max_size=max_bytes, prefer_truncation=True)


def _records(
    answer: dns.message.Message, owner: dns.name.Name, kind: dns.rdatatype.RdataType
) -> dns.rrset.RRset | None:
    found = answer.get_rrset(answer.answer, owner, dns.rdataclass.IN, kind)
    return found if found else None


def _reply(question: Question, code: dns.rcode.Rcode) -> dns.message.Message:
    message = dns.message.make_response(question.message, recursion_available=True)
    message.set_rcode(code)
    return message
