"""The chunked coding: strict on the way in, canonical on the way out, however the bytes are cut."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnel.proto.chunked import SPARE_CHUNKS, ChunkedBody
from tunnel.proto.errors import BadBody


def run(data: bytes, *, step: int = 0, reframe: bool = True) -> tuple[bytes, bytes, bool]:
    """What goes on, what comes after, and whether the body ended."""
    body = ChunkedBody(reframe=reframe)
    out: list[bytes] = []
    rest = b""
    step = step or max(1, len(data))
    for i in range(0, len(data), step):
        if body.done:
            rest += data[i : i + step]
            continue
        pieces, rest = body.feed(data[i : i + step])
        out += pieces
    return b"".join(out), rest, body.done


WHOLE = b"5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"

CASES = [
    (WHOLE, WHOLE),
    (b"0\r\n\r\n", b"0\r\n\r\n"),
    (b"000a\r\n0123456789\r\n00\r\n\r\n", b"a\r\n0123456789\r\n0\r\n\r\n"),
    (b"A\r\n0123456789\r\n0\r\n\r\n", b"a\r\n0123456789\r\n0\r\n\r\n"),
    (b"1;x=y\r\na\r\n1;z\r\nb\r\n0;end\r\n\r\n", b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
    (b"1\r\na\r\n0\r\nGrpc-Status: 0\r\n\r\n", b"1\r\na\r\n0\r\nGrpc-Status: 0\r\n\r\n"),
    (b"0\r\nContent-Length: 5\r\nHost: x\r\nX_Y: 1\r\nok:  1 \r\nX-Forwarded-For: y\r\n\r\n", b"0\r\nok: 1\r\n\r\n"),
]


@pytest.mark.parametrize(("data", "sent"), CASES)
@pytest.mark.parametrize("step", [0, 1, 2, 3, 7])
def test_a_body_comes_out_canonical_however_it_is_cut(data: bytes, sent: bytes, step: int) -> None:
    assert run(data + b"GET", step=step) == (sent, b"GET", True)


@pytest.mark.parametrize("at", range(1, len(WHOLE)))
def test_every_cut_in_two_gives_the_same(at: int) -> None:
    body = ChunkedBody()
    first, nothing = body.feed(WHOLE[:at])
    second, rest = body.feed(WHOLE[at:])
    assert (b"".join(first + second), nothing, rest, body.done) == (WHOLE, b"", b"", True)


def test_a_canonical_body_is_passed_as_it_is() -> None:
    data = b"3\r\nabc\r\n4\r\ndefg\r\n"
    pieces, _ = ChunkedBody().feed(data)
    assert pieces == [data]


def test_data_is_passed_before_its_chunk_is_complete() -> None:
    pieces, _ = ChunkedBody().feed(b"ff\r\nhalf")
    assert b"".join(pieces) == b"ff\r\nhalf"


@pytest.mark.parametrize("step", [0, 1])
def test_without_reframing_only_the_data_comes_out(step: int) -> None:
    assert run(b"5\r\nhello\r\n1;a\r\n!\r\n0\r\nA: b\r\n\r\n", step=step, reframe=False) == (b"hello!", b"", True)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b";x\r\n",
        b"0x5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"-5\r\nhello\r\n",
        b"1_0\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"5\t\r\nhello\r\n",
        b"5 ;x\r\nhello\r\n",
        b"g\r\n",
        b"\xb2\r\n",
        b"11111111111111111\r\n",
        b"ffffffffffffffff\r\n",
        b"5\nhello\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhelloo\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello\r\r0\r\n\r\n",
        b"5;a\nb\r\nhello\r\n",
        b"5;a\rb\r\nhello\r\n",
        b"5;a\x00\r\nhello\r\n",
        b"5;" + b"a" * 300 + b"\r\nhello\r\n",
        b"a" * 300,
        b"0\r\nX : y\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\nX: a\nY: b\r\n\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\n" + b"A: b\r\n" * 100 + b"\r\n",
        b"0\r\nA: " + b"b" * 20_000 + b"\r\n\r\n",
    ],
)
def test_broken_framing_is_refused(data: bytes, step: int) -> None:
    with pytest.raises(BadBody):
        run(data, step=step)


def test_a_cut_body_never_ends_well() -> None:
    body = ChunkedBody()
    body.feed(WHOLE[:-2])
    assert not body.done
    with pytest.raises(BadBody):
        body.end()


def test_a_client_cannot_send_a_flood_of_tiny_chunks() -> None:
    with pytest.raises(BadBody):
        ChunkedBody(limit_chunks=True).feed(b"1\r\na\r\n" * (2 * SPARE_CHUNKS))
    ChunkedBody(limit_chunks=True).feed(b"5\r\nhello\r\n" * (2 * SPARE_CHUNKS))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(1, 50))
def test_any_body_read_back_by_h11_is_the_same(chunks: list[bytes], step: int) -> None:
    data = b"".join(b"%X;ext\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    sent, rest, done = run(data, step=step)
    assert (rest, done) == (b"", True)
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + sent)
    assert isinstance(parser.next_event(), h11.Request)
    read = b""
    while isinstance(event := parser.next_event(), h11.Data):
        read += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    assert read == b"".join(chunks)
    assert run(data, step=step, reframe=False)[0] == read


@given(st.binary(max_size=60), st.integers(1, 60))
def test_random_bytes_are_refused_or_canonical(data: bytes, step: int) -> None:
    try:
        sent, _, done = run(data, step=step)
    except BadBody:
        return
    if done:
        assert run(sent)[0] == sent
