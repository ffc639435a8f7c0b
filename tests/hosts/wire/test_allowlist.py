"""How an allowed name is written, what its normal form is, and what is refused with which word."""

from __future__ import annotations

import pytest

from hosts.wire.allowlist import AllowedName, checked, normal, parse, write


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("pypi.example", AllowedName("pypi.example")),
        (" PyPI.Example. ", AllowedName("pypi.example")),
        ("*.example.org:443", AllowedName("*.example.org", (443,))),
        ("a.example:8443, 443,443", AllowedName("a.example", (8443, 443))),
        ("bücher.example", AllowedName("xn--bcher-kva.example")),
        ("_dmarc.a-b.example", AllowedName("_dmarc.a-b.example")),
    ],
)
def test_it_is_read_and_written_and_read_again(text: str, allowed: AllowedName) -> None:
    assert parse(text) == allowed
    assert parse(write(allowed)) == allowed
    assert checked(allowed) is allowed


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no name"),
        (".", "no name"),
        ("*.", "no name"),
        ("*.com", "top-level"),
        ("a.*.example", "star"),
        ("*a.example", "star"),
        ("https://a.example", "ports"),
        ("a.example/path", "no host name"),
        ("a b.example", "no host name"),
        ("a..example", "no host name"),
        ("-a.example", "no host name"),
        ("a\n.example", "no host name"),
        ("192.0.2.1", "address"),
        ("0x7f000001", "address"),
        ("2130706433", "address"),
        ("[::1]:443", "ports"),
        ("straße.example", "two ways"),
        ("a.example:", "ports"),
        ("a.example:http", "ports"),
        ("a.example:0", "1 to 65535"),
        ("a.example:65536", "1 to 65535"),
        ("a.example:\u0661", "ports"),
        ("a.example:1,2,3,4,5,6,7,8,9,10,11", "1 to 10"),
        ("x" * 64 + ".example", "no host name"),
        ("x." * 140 + "example", "no host name"),
        ("x" * 400, "at most 300"),
        ("\ud800.example", "no host name"),
    ],
)
def test_what_is_no_name_is_refused_with_a_reason(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse(text)


def test_a_suffix_covers_what_is_below_it_and_nothing_beside() -> None:
    suffix, name = AllowedName("*.example.org"), AllowedName("example.org")
    assert suffix.covers("a.example.org")
    assert suffix.covers("a.b.example.org")
    assert not suffix.covers("example.org")
    assert not suffix.covers("notexample.org")
    assert name.covers("example.org")
    assert not name.covers("a.example.org")


def test_the_normal_form_is_its_own() -> None:
    for name in ("pypi.example", "*.example.org", "xn--bcher-kva.example"):
        assert normal(name) == name
