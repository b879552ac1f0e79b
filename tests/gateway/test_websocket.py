"""Frames that come as they should, as they should not, and in pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rpcmq.gateway.websocket import Closed, Pinged, Received, Violation, WebSocket
from tests.gateway.browsers import frame

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def events(*frames: bytes, max_bytes: int = 1000) -> list[Received | Pinged | Closed | Violation]:
    websocket = WebSocket(max_bytes)
    return [event for each in frames for event in websocket.receive(each)]


def code_of(*frames: bytes, max_bytes: int = 1000) -> int:
    found = events(*frames, max_bytes=max_bytes)[-1]
    assert isinstance(found, Violation)
    return found.code


def test_messages_may_come_in_fragments_with_pings_between_them() -> None:
    got = events(frame(TEXT, b"a", is_last=False), frame(PING, b"x"), frame(CONTINUATION, "ä".encode()))
    assert isinstance(got[0], Pinged) and got[0].answer.endswith(b"x") and got[1] == Received("aä")


def test_what_breaks_the_protocol_has_its_code() -> None:
    assert code_of(frame(TEXT, b"{}", is_masked=False)) == 1002
    assert code_of(frame(3, b"")) == 1002
    assert code_of(frame(11, b"")) == 1002
    assert code_of(frame(CONTINUATION, b"x")) == 1002
    assert code_of(frame(TEXT, b"x", is_last=False), frame(TEXT, b"y")) == 1002
    assert code_of(frame(PING, b"x" * 126)) == 1002
    assert code_of(frame(PING, b"x", is_last=False)) == 1002
    assert code_of(frame(CLOSE, b"\0")) == 1002
    assert code_of(frame(CLOSE, b"\x03\xed")) == 1002  # 1005 is never sent
    assert code_of(frame(CLOSE, b"\x03\xe8\xff")) == 1007
    assert code_of(bytes([0x81 | 0x40, 0x80, 0, 0, 0, 0])) == 1002  # compressed, and that was not agreed on
    assert code_of(bytes([0x81, 0xFE, 0, 5, 0, 0, 0, 0])) == 1002  # a length longer than it must be
    assert code_of(frame(TEXT, b"", length=1 << 63)[:14]) == 1002
    assert code_of(frame(TEXT, b"\xff")) == 1007
    assert code_of(frame(TEXT, "ä".encode()[:1])) == 1007
    assert code_of(frame(BINARY, b"x")) == 1003


def test_a_message_is_refused_as_soon_as_it_is_too_long() -> None:
    assert code_of(frame(TEXT, b"x" * 1001)) == 1009
    assert code_of(frame(TEXT, b"x" * 1100, length=1 << 40)) == 1009
    assert code_of(*[frame(TEXT if not n else CONTINUATION, b"x" * 600, is_last=False) for n in range(2)]) == 1009
    assert events(frame(TEXT, b"x" * 1000)) == [Received("x" * 1000)]
    # Bytes count, not characters.
    assert code_of(frame(TEXT, "ä".encode() * 600)) == 1009


def test_the_first_message_is_short_and_later_ones_may_be_long() -> None:
    websocket = WebSocket(1000, 100)
    assert list(websocket.receive(frame(TEXT, b"x" * 100))) == [Received("x" * 100)]
    websocket.accept()
    assert list(websocket.receive(frame(TEXT, b"x" * 1000))) == [Received("x" * 1000)]
    (found,) = WebSocket(1000, 100).receive(frame(TEXT, b"x" * 101))
    assert isinstance(found, Violation) and (found.code, found.reason) == (
        1009,
        "the first message has more than 100 bytes",
    )


def test_fragments_without_an_end_are_bounded() -> None:
    frames = [frame(TEXT, is_last=False), *[frame(CONTINUATION, is_last=False)] * 5000]
    websocket = WebSocket(1000)
    found = [event for each in frames for event in websocket.receive(each)]
    assert [event.code for event in found if isinstance(event, Violation)] == [1008]


def test_after_an_end_nothing_comes() -> None:
    websocket = WebSocket(1000)
    (closed,) = websocket.receive(frame(CLOSE, b"\x03\xe8bye"))
    assert isinstance(closed, Closed) and closed.code == 1000 and closed.answer
    assert list(websocket.receive(frame(TEXT, b"x"))) == []
    assert websocket.text(b"x") == websocket.ping() == websocket.close(1000, "") == b""


def test_who_closes_first_gets_an_answer_and_sends_none() -> None:
    websocket = WebSocket(1000)
    assert websocket.close(1001, "x" * 200)
    assert list(websocket.receive(frame(TEXT, b"late"))) == [Received("late")]
    assert list(websocket.receive(frame(CLOSE, b"\x03\xe9"))) == [Closed(1001, b"")]


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_taken_or_refused(pieces: list[bytes]) -> None:
    websocket = WebSocket(1000)
    ends = 0
    for piece in pieces:
        for event in websocket.receive(piece):
            assert not ends
            ends += isinstance(event, Violation | Closed)


@given(st.text(max_size=300), st.integers(1, 7), st.data())
def test_a_message_is_the_same_however_it_is_cut(text: str, parts: int, data: st.DataObject) -> None:
    body = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), min_size=parts, max_size=parts)))
    edges = [0, *cuts, len(body)]
    fragments = [body[a:b] for a, b in pairwise(edges)]
    stream = b"".join(
        frame(CONTINUATION if n else TEXT, each, is_last=n == len(fragments) - 1) for n, each in enumerate(fragments)
    )
    size = data.draw(st.integers(1, 50))
    websocket = WebSocket(2000)
    found = [e for at in range(0, len(stream), size) for e in websocket.receive(stream[at : at + size])]
    assert found == [Received(text)]
