"""Messages in a stream: whatever the pieces in which it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.syslog.framing import Frame, Framing, OutOfStep


def frames_of(*pieces: bytes, max_bytes: int = 100) -> list[Frame]:
    framing = Framing(max_bytes)
    return [frame for piece in pieces for frame in framing.feed(piece)]


def test_lengths_and_lines_may_follow_each_other() -> None:
    assert frames_of(b"5 <1>\na<2>line\r\n\n<3>nul\0" + b"2 ab") == [
        Frame(b"<1>\na", 5, True),
        Frame(b"<2>line", 8, False),
        Frame(b"<3>nul", 6, False),
        Frame(b"ab", 2, True),
    ]


counted = st.binary(min_size=1, max_size=40).map(
    lambda data: (Frame(data[:20], len(data), True), b"%d " % len(data) + data)
)
lines = st.text("abc <>", max_size=40).map(lambda text: f"<1>{text}".encode())
lined = lines.map(lambda data: (Frame(data[:20], len(data), False), data + b"\n"))


@given(st.lists(st.one_of(counted, lined), max_size=8), st.lists(st.integers(1, 20), min_size=1))
def test_pieces_of_any_size_give_the_same_messages(expected: list[tuple[Frame, bytes]], sizes: list[int]) -> None:
    stream = b"".join(data for _, data in expected)
    framing, frames, at, turn = Framing(20), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        frames += framing.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert frames == [frame for frame, _ in expected]
    assert framing.end() is None


def test_of_a_message_that_is_too_long_only_the_beginning_is_kept() -> None:
    framing = Framing(10)
    assert framing.feed(b"1000000 " + b"a" * 12) == []
    for _ in range(999_988 // 100):
        assert framing.feed(b"b" * 100) == []
        assert len(framing._data) <= 110
    assert framing.feed(b"b" * 88 + b"1 c") == [Frame(b"a" * 10, 1_000_000, True), Frame(b"c", 1, True)]


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"GET / HTTP/1.1\r\n", r"neither a length nor '<', but with b'GET / HT'"),
        (b"\x16\x03\x01\x02\x00", "neither a length nor"),
        (b"012 a", "neither a length nor"),
        (b"1" * 12, "more than 10 digits"),
        (b"12x a", "neither a length nor"),
    ],
)
def test_what_is_no_frame_is_told_behind_those_before_it(stream: bytes, problem: str) -> None:
    with pytest.raises(OutOfStep, match=problem) as caught:
        frames_of(b"2 ab" + stream)
    assert caught.value.frames == [Frame(b"ab", 2, True)]


def test_the_end_of_a_connection_ends_a_line_and_not_a_counted_message() -> None:
    framing = Framing(10)
    assert framing.feed(b"<1>no newline") == []
    assert framing.end() == Frame(b"<1>no newl", 13, False)
    framing = Framing(10)
    assert framing.feed(b"9 half") == []
    with pytest.raises(OutOfStep, match="ended after 4 bytes of a message of 9 bytes"):
        framing.end()


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_no_bytes_raise_anything_else(pieces: list[bytes]) -> None:
    framing = Framing(10)
    try:
        for piece in pieces:
            framing.feed(piece)
        framing.end()
    except OutOfStep as error:
        assert str(error)
