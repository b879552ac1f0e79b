"""Requests of HTTP, and who may come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.gateway.http import BadRequest, Gate, HttpRequest, RequestReader, answer, client_address

UPGRADE = {
    "host": "localhost", "connection": "keep-alive, Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


def read(*pieces: bytes) -> HttpRequest | None:
    reader = RequestReader()
    for piece in pieces:
        if request := reader.feed(piece):
            return request
    return None


def status_of(text: bytes) -> int:
    with pytest.raises(BadRequest) as caught:
        read(text)
    return caught.value.status


def test_a_request_may_come_in_pieces_and_have_something_behind_it() -> None:
    request = read(b"GET /a?b=c HT", b"TP/1.1\r\nHost: x\r\nA: 1\r\na: 2\r", b"\n\r\nrest")
    assert request == HttpRequest("GET", "/a", {"host": "x", "a": "1, 2"}, b"rest")
    assert read(b"GET / HTTP/1.1\r\n") is None


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nOrigin: a\r\nOrigin: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\0\r\n\r\n", 400),
        (b"GET /" + b"x" * 20000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 4000, 431),
    ],
)
def test_what_is_no_request_is_refused(text: bytes, status: int) -> None:
    assert status_of(text) == status


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        read(data)
    except BadRequest as error:
        assert 400 <= error.status < 600


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("connection", "keep-alive", 426),
        ("sec-websocket-version", "8", 426),
        ("sec-websocket-version", "", 426),
        ("sec-websocket-key", "", 400),
        ("sec-websocket-key", "short==", 400),
        ("sec-websocket-key", "é" * 22 + "==", 400),
        ("sec-websocket-protocol", "chat", 400),
    ],
)
def test_a_handshake_that_is_none_is_refused(header: str, value: str, status: int) -> None:
    gate = Gate((), (), False)
    with pytest.raises(BadRequest) as caught:
        gate.accept(HttpRequest("GET", "/rpcmq", UPGRADE | {header: value}))
    assert caught.value.status == status


def test_the_handshake_is_answered_as_the_rfc_has_it() -> None:
    gate = Gate((), (), False)
    accepted = gate.accept(HttpRequest("GET", "/rpcmq", UPGRADE | {"sec-websocket-protocol": "chat, rpcmq.1"}))
    assert accepted.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in accepted
    assert b"Sec-WebSocket-Protocol: rpcmq.1\r\n" in accepted
    assert b"Sec-WebSocket-Protocol" not in gate.accept(HttpRequest("GET", "/rpcmq", UPGRADE))


def test_behind_tls_pages_without_it_are_other_origins() -> None:
    for is_tls, scheme, is_refused in ((True, "http", True), (True, "https", False), (False, "https", False)):
        request = HttpRequest("GET", "/rpcmq", UPGRADE | {"origin": f"{scheme}://localhost"})
        try:
            Gate((), (), is_tls).check_origin(request)
        except BadRequest as error:
            assert is_refused and error.status == 403
        else:
            assert not is_refused


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_origin_and_host_are_decided(origin: str, host: str) -> None:
    gate = Gate(("gateway.example.org",), ("https://app.example.org",), False)
    request = HttpRequest("GET", "/", {"origin": origin, "host": host})
    try:
        gate.check(request)
        allowed = gate.check_origin(request)
    except BadRequest as error:
        assert error.status in (403, 421)
    else:
        assert allowed == "https://app.example.org" or allowed.partition("://")[2] == host.lower()


@pytest.mark.parametrize("origin", ["http://[", "http://[zz]:1", "https://]", "http://[::1"])
def test_an_origin_whose_brackets_hold_no_address_is_refused(origin: str) -> None:
    with pytest.raises(BadRequest, match=r"access\.origins"):
        Gate((), (), False).check_origin(HttpRequest("GET", "/rpcmq", {"origin": origin, "host": "localhost"}))


def test_the_address_is_the_last_that_is_no_proxy() -> None:
    request = HttpRequest("GET", "/", {"x-forwarded-for": "1.1.1.1, 203.0.113.9, 10.0.0.2"})
    assert client_address(request, "198.51.100.1", ()) == "198.51.100.1"
    assert client_address(request, "10.0.0.1", ("10.0.0.0/8",)) == "203.0.113.9"
    assert client_address(request, "10.0.0.1", ("10.0.0.1",)) == "10.0.0.2"
    assert client_address(HttpRequest("GET", "/", {}), "10.0.0.1", ("10.0.0.1",)) == "10.0.0.1"
    odd = HttpRequest("GET", "/", {"x-forwarded-for": "<script>"})
    assert client_address(odd, "10.0.0.1", ("10.0.0.1",)) == "<script>"


def test_an_answer_has_no_more_than_it_says() -> None:
    head, _, body = answer(404, b"nothing\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 Not Found") and b"Content-Length: 8" in head and body == b"nothing\n"
    assert answer(200, b"x", head_only=True).endswith(b"\r\n\r\n")
