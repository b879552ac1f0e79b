"""Responses of origins are parsed strictly, and nothing incomplete looks whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.fetcher.responses import MalformedResponse, ResponseParser


def parsed(*pieces: bytes, is_head: bool = False) -> ResponseParser:
    parser = ResponseParser(is_head=is_head)
    for piece in pieces:
        parser.feed(piece)
    return parser


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("cut", range(1, 52))
def test_a_response_may_come_in_pieces(cut: int) -> None:
    data = OK + b"X-Y: z \r\nContent-Length: 5\r\n\r\nabcde"
    parser = parsed(data[:cut], data[cut:])
    assert (parser.status, parser.reason, parser.length) == (200, "OK", 5)
    assert parser.headers == [(b"X-Y", b"z"), (b"Content-Length", b"5")]
    assert parser.take() == b"abcde" and parser.is_complete and parser.may_reuse


def test_chunks_are_joined_and_trailers_dropped() -> None:
    parser = parsed(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n2\r\nbc\r\n0\r\nX-T: t\r\n\r\n")
    assert parser.take() == b"abc" and parser.is_complete and parser.may_reuse
    assert all(name != b"X-T" for name, _ in parser.headers)


def test_chunks_of_http_10_end_their_connection() -> None:
    # RFC 9112 section 6.1: the framing of such a response counts as faulty.
    parser = parsed(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    )
    assert parser.take() == b"a" and parser.is_complete and not parser.may_reuse


def test_interim_responses_are_passed_over() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    parser = parsed(b"HTTP/1.1 100 Continue\r\n\r\n" + hints, OK + b"Content-Length: 0\r\n\r\n")
    assert parser.status == 200 and parser.headers == [(b"Content-Length", b"0")] and parser.is_complete
    with pytest.raises(MalformedResponse, match="interim"):
        parsed(hints * 100)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_responses_have_no_body(status: bytes) -> None:
    parser = parsed(b"HTTP/1.1 " + status + b"\r\nETag: x\r\n\r\n")
    assert parser.is_complete and parser.may_reuse


def test_a_response_to_head_has_no_body_whatever_it_says() -> None:
    for field in (b"Content-Length: 5", b"Transfer-Encoding: chunked", b"X: y"):
        parser = parsed(OK + field + b"\r\n\r\n", is_head=True)
        assert parser.is_complete and not parser.chunks
        assert not parser.may_reuse  # some origins send the body, too
    assert parsed(OK + b"Content-Length: 0\r\n\r\n", is_head=True).may_reuse


def test_bytes_after_a_response_spoil_the_connection_and_nothing_else() -> None:
    for more in (b"x", OK + b"Content-Length: 0\r\n\r\n"):
        parser = parsed(OK + b"Content-Length: 2\r\n\r\nab" + more)
        assert parser.take() == b"ab" and parser.is_complete and not parser.may_reuse
        parser = parsed(OK + b"Content-Length: 2\r\n\r\nab", more)
        assert parser.take() == b"ab" and parser.is_complete and not parser.may_reuse


def test_only_the_end_of_the_connection_may_end_a_body_without_length() -> None:
    parser = parsed(OK + b"\r\nabc")
    assert parser.ends_with_connection and not parser.is_complete
    assert parser.end() and parser.is_complete and not parser.may_reuse
    for short in (b"Content-Length: 5\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"X: "):
        assert not parsed(OK + short).end()


def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    assert not parsed(OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n").may_reuse
    assert not parsed(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").may_reuse


@pytest.mark.parametrize(
    "data",
    [
        b"garbage", b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 099 X\r\n\r\n", b"HTTP/1.1 600 X\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Transfer-Encoding: gzip\r\n\r\n", OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"X: a\r\n b\r\n\r\n", OK + b"X : a\r\n\r\n", OK + b"X: a\x00b\r\n\r\n", b"HTTP/1.1 200 OK\nX: a\n\n",
        OK + b"X: " + b"a" * 200_000 + b"\r\n\r\n", OK + b"X: a\r\n" * 300 + b"\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
    ],
)  # fmt: skip
def test_malformed_responses_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parsed(data)


def test_a_reason_without_an_end_is_refused() -> None:
    parser = ResponseParser()
    for piece in (b"HTTP/1.1 200 ", *[b"x" * 10_000] * 13):
        parser.feed(piece)
    with pytest.raises(MalformedResponse, match="its reason is too long"):
        parser.feed(b"x" * 10_000)


def test_a_head_without_an_end_is_refused() -> None:
    with pytest.raises(MalformedResponse, match="no end"):
        parsed(OK + b"X: ", *([b"a" * 10_000] * 40))


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"2\r\nok\r\n2;", b"a" * 1000),  # an extension
        (b"2\r\nok\r\n", b"0" * 1000),  # a size
        (b"2\r\nok\r\n0\r\nX: ", b"a" * 1000),  # a trailer
        (b"2\r\nok\r\n0\r\n", b"x: y\r\n" * 200),  # trailers
        (b"", b"1;" + b"a" * 996 + b"\r\nx\r\n"),
    ],
)
def test_frames_of_chunks_have_a_bound(start: bytes, piece: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parsed(OK + b"Transfer-Encoding: chunked\r\n\r\n", start, *[piece] * 400)


def test_small_chunks_are_no_fault() -> None:
    pieces = [b"1\r\nx\r\n" * 1000] * 100
    parser = parsed(OK + b"Transfer-Encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n")
    assert parser.take() == b"x" * 100_000 and parser.is_complete


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_give_a_response_or_are_refused(pieces: list[bytes]) -> None:
    try:
        parser = parsed(*pieces)
    except MalformedResponse:
        return
    assert parser.has_head or not parser.is_complete
