"""Requests that come together: most of them stay bytes until those before them are answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.requests import RequestParser
from tests.proxy.http.serving import SECONDS, everything, serving

GET = b"GET / HTTP/1.1\r\nHost:a\r\n\r\n"


def post(framing: bytes, body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n" + body


#: Requests, and their bodies.
MIXED = {
    GET: b"",
    b"GET /" + b"t" * 3000 + b" HTTP/1.1\r\nHost:a\r\n\r\n": b"",
    post(b"Content-Length: 3000", b"x" * 3000): b"x" * 3000,
    post(b"Content-Length: 2", b"ab"): b"ab",
    post(b"Transfer-Encoding: chunked", b"0\r\n\r\n"): b"",
    post(b"Transfer-Encoding: chunked", b"bb8\r\n" + b"y" * 3000 + b"\r\n1\r\nz\r\n0\r\n\r\n"): b"y" * 3000 + b"z",
    post(b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 5", GET[:5]): GET[:5],
}


def bodies_of(parser: RequestParser) -> list[bytes]:
    """Take all requests, whose bodies have come, too."""
    found = []
    while parser.requests or parser.resume():
        while parser.requests:
            request = parser.requests.popleft()
            while not request.is_complete:
                assert parser.resume()
            found.append(b"".join(request.chunks))
    return found


@pytest.mark.parametrize("first", MIXED, ids=lambda first: str(first[:40]))
def test_most_of_them_stay_bytes(first: bytes) -> None:
    # A request takes forty times its bytes.
    data = first + GET * 10_000
    parser = RequestParser(Limits())
    parser.feed(data)
    assert len(parser.requests) < 200 and len(parser.rest) > len(data) - 10_000
    assert bodies_of(parser) == [MIXED[first]] + [b""] * 10_000
    assert parser.rest == b"" and parser.refused is None


def test_short_ones_behind_one_that_asks_for_another_protocol_come_once() -> None:
    parser = RequestParser(Limits())
    parser.feed(b"GET /1 HTTP/1.1\r\nHost:a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n" + GET)
    assert [request.target for request in parser.requests] == [b"/1", b"/"] and parser.rest == b""


def test_one_that_is_refused_is_so_after_those_before_it() -> None:
    parser = RequestParser(Limits())
    parser.feed(GET * 500 + b"GET / HTTP/1.1\r\n\r\n" + GET)
    assert parser.refused is None
    assert len(bodies_of(parser)) == 500
    assert parser.refused is not None and parser.refused.status == 400
    assert not parser.requests


@given(st.lists(st.sampled_from(list(MIXED)), max_size=40), st.lists(st.integers(1, 3000), max_size=40))
def test_they_are_the_same_however_they_come(requests: list[bytes], cuts: list[int]) -> None:
    data = b"".join(requests)
    parser = RequestParser(Limits())
    for size in cuts:
        parser.feed(data[:size])
        data = data[size:]
    parser.feed(data)
    assert bodies_of(parser) == [MIXED[each] for each in requests] and parser.refused is None


def test_each_is_answered_in_its_turn() -> None:
    last = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with serving() as served, served.connected() as sock:
        sock.settimeout(SECONDS)
        sock.sendall(b"".join(MIXED) * 20 + last)
        said = everything(sock)
    at = 0
    for request in [*MIXED] * 20 + [last]:
        method, target, _ = request.split(b" ", 2)
        at = said.index(b"\r\n\r\n%s %s %s" % (method, target, MIXED.get(request, b"")), at) + 1
    assert said.count(b"HTTP/1.1 200 OK") == len(MIXED) * 20 + 1
