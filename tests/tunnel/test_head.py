"""Collecting a head: the same wherever the bytes are cut, bounded, and quick to give up on what is none."""

from __future__ import annotations

import pytest

from tunnel.proto.head import HeadBuffer, HeadTooLong, MalformedHead

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("at", range(1, len(HEAD)))
def test_a_head_cut_anywhere_is_put_together(at: int) -> None:
    buffer = HeadBuffer(1000)
    assert buffer.feed(HEAD[:at]) is None
    assert bool(buffer)
    assert buffer.feed(HEAD[at:] + b"rest") == (HEAD, b"rest")
    assert not buffer


def test_byte_by_byte_it_is_the_same() -> None:
    buffer = HeadBuffer(1000)
    assert [buffer.feed(HEAD[i : i + 1]) for i in range(len(HEAD) - 1)] == [None] * (len(HEAD) - 1)
    assert buffer.feed(HEAD[-1:]) == (HEAD, b"")


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\nHost: a\n\n", b"GET / HTTP/1.1\r\nA: b\rc", b"\x16\x03\x01", b"a\x00"]
)
def test_what_will_never_be_a_head_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(MalformedHead):
        HeadBuffer(1000).feed(data)


@pytest.mark.parametrize("step", [1, 2000])
def test_a_long_head_is_refused_and_says_whether_it_is_the_url(step: int) -> None:
    def feed(data: bytes) -> bool:
        buffer = HeadBuffer(1000)
        try:
            for i in range(0, len(data), step):
                buffer.feed(data[i : i + step])
        except HeadTooLong as e:
            return e.in_first_line
        raise AssertionError("it was let through")

    assert feed(b"GET /" + b"a" * 2000)
    assert not feed(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200)
    assert not feed(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n")
