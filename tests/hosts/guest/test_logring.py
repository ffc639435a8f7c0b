"""The last lines of an app, bounded whatever it prints."""

from __future__ import annotations

from hosts.guest.agent.logring import MAX_LINE_BYTES, MAX_LINES, MAX_PAGE_BYTES, LogRing


def test_lines_are_numbered_and_paged() -> None:
    ring = LogRing()
    ring.feed(b"one\ntwo\nthr")
    assert ring.page(0) == (["one", "two"], 2)
    ring.feed(b"ee\r\n")
    assert ring.page(2) == (["three"], 3)
    assert ring.page(3) == ([], 3)


def test_old_lines_go_and_numbers_stay() -> None:
    ring = LogRing()
    ring.feed(b"".join(b"%d\n" % n for n in range(MAX_LINES + 5)))
    lines, following = ring.page(0)
    assert (lines[0], following) == ("5", MAX_LINES + 5)


def test_a_line_without_an_end_is_cut() -> None:
    ring = LogRing()
    ring.feed(b"x" * (MAX_LINE_BYTES * 3 + 1))
    assert ring.next == 3
    assert [len(line) for line in ring.page(0)[0]] == [MAX_LINE_BYTES] * 3
    assert ring.tail(1) == ["x"]


def test_bytes_that_are_no_text_are_kept_as_marks() -> None:
    ring = LogRing()
    ring.feed(b"\xff\xfe\n")
    assert ring.page(0)[0] == ["\ufffd\ufffd"]


def test_a_page_is_bounded_and_the_next_goes_on() -> None:
    ring = LogRing()
    ring.feed((b"y" * 1999 + b"\n") * MAX_LINES)
    lines, following = ring.page(0)
    assert len(lines) == following < MAX_LINES
    assert sum(map(len, lines)) <= MAX_PAGE_BYTES
    assert ring.page(following)[0]


def test_a_number_from_another_life_of_the_agent_is_no_error() -> None:
    ring = LogRing()
    ring.feed(b"a\n")
    assert ring.page(500) == ([], 1)


def test_flush_makes_a_line_of_what_is_left() -> None:
    ring = LogRing()
    ring.feed(b"no end")
    ring.flush()
    assert ring.page(0) == (["no end"], 1)
