"""Requests are parsed as RFC 9112 has it, and what could be read in two ways is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.requests import Request, RequestParser

LIMITS = Limits(target_bytes=200, header_bytes=1000, header_count=10, body_bytes=50)
FIELDS = b"Host: a.example\r\n"


def parsed(*pieces: bytes) -> RequestParser:
    parser = RequestParser(LIMITS)
    for piece in pieces:
        parser.feed(piece)
    return parser


def only(*pieces: bytes) -> Request:
    parser = parsed(*pieces)
    assert parser.refused is None
    (request,) = parser.requests
    return request


def post(fields: bytes, body: bytes = b"") -> bytes:
    return b"POST /p HTTP/1.1\r\n" + FIELDS + fields + b"\r\n" + body


def test_a_request() -> None:
    request = only(b"GET /a?b=c HTTP/1.1\r\nHost: A.example:80\r\nX-Y:  two words \t\r\n\r\n")
    assert (request.method, request.target, request.host) == (b"GET", b"/a?b=c", b"a.example:80")
    assert request.headers == [(b"Host", b"A.example:80"), (b"X-Y", b"two words")]
    assert request.is_complete and request.keep_alive and request.is_http_11 and not request.has_body


def test_requests_one_behind_the_other_are_in_order() -> None:
    parser = parsed(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(5)))
    assert [request.target for request in parser.requests] == [b"/%d" % number for number in range(5)]


@pytest.mark.parametrize("cut", range(1, 70))
def test_a_request_may_come_in_pieces(cut: int) -> None:
    data = b"POST /long/path HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nabcde"
    request = only(data[:cut], data[cut:])
    assert (request.target, request.headers[1]) == (b"/long/path", (b"Content-Length", b"5"))
    assert b"".join(request.chunks) == b"abcde" and request.is_complete


def test_a_chunked_body_without_its_extensions_and_trailers() -> None:
    request = only(post(b"Transfer-Encoding: chunked\r\n", b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: t\r\n\r\n"))
    assert b"".join(request.chunks) == b"abcde" and request.is_complete and request.length is None
    assert all(name != b"X-Trailer" for name, _ in request.headers)


def test_a_target_in_absolute_form_says_which_host() -> None:
    request = only(b"GET HTTP://B.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert (request.host, request.target, request.header(b"host")) == (b"b.example", b"/?q", b"B.example")


def test_fields_that_a_cache_looks_at_are_seen() -> None:
    assert only(b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\nCookie: y\r\n\r\n").is_plain
    for fields in (
        b"Range: bytes=0-1",
        b"If-None-Match: x",
        b"cache-control: no-cache",
        b"Authorization: y",
        b"X-Y: z",
    ):
        assert not only(b"GET / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n\r\n").is_plain
    assert not only(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").is_plain


def test_http_1_0_needs_no_host_and_closes() -> None:
    request = only(b"GET / HTTP/1.0\r\n\r\n")
    assert (request.host, request.keep_alive, request.is_http_11) == (b"", False, False)
    assert only(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive


def test_nothing_is_read_behind_the_last_request() -> None:
    parser = parsed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert len(parser.requests) == 1 and parser.refused is None


def test_a_request_of_http_1_0_asks_for_no_other_protocol() -> None:
    data = b"GET /%d HTTP/1.0\r\nConnection: upgrade, keep-alive\r\nUpgrade: websocket\r\n\r\n"
    parser = parsed(data % 1 + data % 2)
    assert [request.wants_websocket for request in parser.requests] == [False, False] and parser.refused is None
    assert [request.target for request in parser.requests] == [b"/1", b"/2"] and parser.rest == b""


def test_a_request_to_upgrade_to_something_unknown_is_an_ordinary_one() -> None:
    data = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    assert [request.target for request in parsed(data).requests] == [b"/", b"/2"]


INNER = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
FRAMED = {
    "length": b"Content-Length: %d\r\n\r\n%s" % (len(INNER), INNER),
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(INNER), INNER),
}


@pytest.mark.parametrize("upgrade", [b"h2c", b"TLS/1.0", b"websocket"])
@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("cut", [0, 30, 85, 120])
def test_the_body_of_a_request_that_asks_for_another_protocol_is_no_request(
    upgrade: bytes, framing: str, cut: int
) -> None:
    head = b"POST /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: " + upgrade + b"\r\n"
    data = (head + FRAMED[framing]) * 2 + b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    parser = RequestParser(Limits())
    parser.feed(data[:cut])
    parser.feed(data[cut:])
    assert parser.refused is None
    assert [request.target for request in parser.requests] == [b"/1", b"/1", b"/2"]
    assert [b"".join(request.chunks) for request in parser.requests] == [INNER, INNER, b""]
    assert all(request.is_complete for request in parser.requests)


def test_the_last_request_of_a_connection_may_ask_for_another_protocol_with_a_body() -> None:
    fields = b"Connection: close, upgrade\r\nUpgrade: h2c\r\n"
    parser = parsed(b"POST /1 HTTP/1.1\r\nHost: a\r\n" + fields + b"Content-Length: 2\r\n\r\nok" + INNER)
    assert [b"".join(request.chunks) for request in parser.requests] == [b"ok"] and parser.refused is None


def test_many_requests_that_ask_for_another_protocol_at_once() -> None:
    data = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n" * 5000
    parser = parsed(data)
    count = 0
    while parser.requests or parser.resume():
        count += len(parser.requests)
        parser.requests.clear()
    assert count == 5000 and parser.refused is None


def test_a_protocol_that_connection_does_not_name_is_not_asked_for() -> None:
    parser = parsed(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n" + INNER)
    assert [request.upgrade for request in parser.requests] == [b"", b""]


def test_bytes_after_an_upgrade_to_websocket_are_kept_apart() -> None:
    parser = parsed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00")
    assert parser.requests[0].upgrade == b"websocket" and parser.rest == b"\x81\x00"


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (400, b"GET / HTTP/1.1\r\n\r\n"),  # no Host
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: " + b"a" * 300 + b"\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),  # obs-fold
        (400, b"GET / HTTP/1.1\nHost: a\n\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x00c\r\n\r\n"),
        (400, b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET a HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, b"GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, post(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n")),
        (400, post(b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n")),
        (400, post(b"Content-Length: 3\r\nContent-Length: 3\r\n")),
        (400, post(b"Content-Length: 3, 3\r\n")),
        (400, post(b"Content-Length: +3\r\n")),
        (400, post(b"Content-Length: -3\r\n")),
        (400, post(b"Content-Length: 0x3\r\n")),
        (400, post(b"Content-Length: 99999999999999999999\r\n")),
        (501, post(b"Transfer-Encoding: gzip, chunked\r\n")),
        (501, post(b"Transfer-Encoding: xchunked\r\n")),
        (400, post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
        (501, post(b"Transfer-Encoding: identity\r\n")),
        (400, post(b"Transfer-Encoding: \x0bchunked\r\n")),
        (400, b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (417, post(b"Expect: 200-ok\r\n")),
        (501, b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (405, b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"),
        (405, b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (505, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
        (505, b"GET /\r\n\r\n"),
        (501, b"\x16\x03\x01\x02\x00\x01\x00\x01"),  # TLS on a plain port
        (414, b"GET /" + b"a" * 201 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
        (414, b"GET /" + b"a" * 201),  # before its end
        (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 1000 + b"\r\n\r\n"),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 10 + b"\r\n"),
        (413, post(b"Content-Length: 51\r\n")),
        (400, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\n"),
    ],
)  # fmt: skip
def test_hostile_and_oversized_requests_are_refused(status: int, data: bytes) -> None:
    parser = parsed(data)
    assert not parser.requests and parser.refused is not None, data
    assert parser.refused.status == status and parser.refused.text.isprintable()


def test_a_field_without_an_end_is_refused_before_it_fills_memory() -> None:
    parser = parsed(b"GET / HTTP/1.1\r\nX: ", *([b"a" * 100] * 13))
    assert parser.refused is not None and parser.refused.status == 431


@pytest.mark.parametrize(
    "body",
    [
        b"3\nabc\r\n", b"0x3\r\nabc\r\n", b"3 \r\nabc\r\n", b"+3\r\nabc\r\n", b"3\r\nabcd\r\n",
        b"f" * 20 + b"\r\n", b"3\r\nabcXX0\r\n",
    ],
)  # fmt: skip
def test_malformed_chunks_are_refused(body: bytes) -> None:
    parser = parsed(post(b"Transfer-Encoding: chunked\r\n", body))
    assert parser.refused is not None and not parser.requests[0].is_complete


def test_a_chunked_body_has_a_bound() -> None:
    parser = parsed(post(b"Transfer-Encoding: chunked\r\n"), b"20\r\n" + b"a" * 32 + b"\r\n", b"20\r\n" + b"a" * 32)
    assert parser.refused is not None and parser.refused.status == 413


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"2\r\nok\r\n2;", b"a" * 100),  # an extension
        (b"2\r\nok\r\n", b"0" * 100),  # a size
        (b"2\r\nok\r\n0\r\nX: ", b"a" * 100),  # a trailer
        (b"2\r\nok\r\n0\r\n", b"x: y\r\n" * 5),  # trailers
        (b"", b"1;" + b"a" * 96 + b"\r\nx\r\n"),
    ],
)
def test_frames_of_chunks_have_a_bound(start: bytes, piece: bytes) -> None:
    parser = RequestParser(LIMITS)
    parser.feed(post(b"Transfer-Encoding: chunked\r\n", start))
    for _ in range(40):
        parser.feed(piece)
    assert parser.refused is not None and not parser.requests[0].is_complete


def test_small_chunks_are_no_fault() -> None:
    parser = RequestParser(Limits())
    parser.feed(post(b"Transfer-Encoding: chunked\r\n"))
    for _ in range(1000):
        parser.feed(b"1\r\nx\r\n" * 100)
    parser.feed(b"0\r\n\r\n")
    assert parser.refused is None and parser.requests[0].received == 100_000 and parser.requests[0].is_complete


def test_empty_lines_before_a_request_have_a_bound() -> None:
    parser = parsed(*[b"\r\n" * 50] * 20)
    assert parser.refused is not None and parser.refused.status == 400


def test_what_follows_a_refused_request_is_not_read() -> None:
    parser = parsed(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n")
    parser.feed(b"GET /4 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert [request.target for request in parser.requests] == [b"/1"] and parser.refused is not None


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_give_requests_or_a_refusal(pieces: list[bytes]) -> None:
    parser = parsed(*pieces)
    assert all(request.method and request.host is not None for request in parser.requests)


@given(st.binary(max_size=40), st.integers(1, 120))
def test_the_body_never_becomes_a_request(body: bytes, cut: int) -> None:
    data = post(b"Content-Length: %d\r\n" % len(body), body)
    request = only(data[:cut], data[cut:])
    assert b"".join(request.chunks) == body and request.is_complete
