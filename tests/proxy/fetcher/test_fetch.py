"""Requests to origins: connections that are kept, retries, failover; and origins that lie, stall and break."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.server import StreamServer

from rpcmq.proxy.fetcher.fetch import Fetched, FetchFailed, fetch, request_head, request_lines
from rpcmq.proxy.fetcher.health import HealthChecks
from rpcmq.proxy.fetcher.origins import Origins
from rpcmq.proxy.fetcher.responses import ResponseParser
from rpcmq.proxy.http.errors import TruncatedBody
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.http.tls import Certificates
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.proxy.settings import OriginUrl, SiteSettings
from rpcmq.testing import eventually
from tests.proxy.certificates import make_certificate
from tests.proxy.world import Origin, raw_origin, saying

HOST = [("Host", "a.example")]
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def start() -> Iterator[Callable[..., Origin]]:
    """Starts origins."""
    made: list[Origin] = []

    def start(answer: Callable[[Exchange], None]) -> Origin:
        made.append(Origin(answer))
        made[-1].start()
        return made[-1]

    yield start
    for origin in made:
        origin.stop()


def origins_of(*urls: OriginUrl, **site: Any) -> Origins:
    given = {"connect_seconds": 30.0, "first_byte_seconds": 30.0, "idle_seconds": 30.0, **site}
    return Origins(SiteSettings(names=("a.example",), origins=urls, **given))


def got(origins: Origins, method: str = "GET", body: Any = b"", target: str = "/x") -> tuple[int, bytes]:
    fetched = fetch(origins, method, request_lines(method, target, HOST), body)
    try:
        return fetched.response.parser.status, b"".join(fetched.response.body())
    finally:
        fetched.close()


def dead_url() -> OriginUrl:
    """Nobody listens there."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return OriginUrl("http", "127.0.0.1", sock.getsockname()[1])


def test_a_connection_is_used_again(start: Callable[..., Origin]) -> None:
    origin = start(saying(b"hello"))
    origins = origins_of(origin.url)
    assert [got(origins) for _ in range(5)] == [(200, b"hello")] * 5
    assert origin.server is not None and origin.server.counters.accepted == 1
    assert [origin.in_flight for origin in origins.all] == [0]
    origins.close()


def test_a_response_leaves_nothing_to_the_collector_of_cycles(start: Callable[..., Origin]) -> None:
    origins = origins_of(start(saying(b"hello")).url)
    got(origins)
    gc.collect()
    before = sum(type(each) is ResponseParser for each in gc.get_objects())
    gc.disable()
    try:
        got(origins)
        assert sum(type(each) is ResponseParser for each in gc.get_objects()) <= before
    finally:
        gc.enable()
    origins.close()


@pytest.mark.parametrize("body", [b"abc", [b"ab", b"", b"c"]])
def test_a_body_is_sent(start: Callable[..., Origin], body: Any) -> None:
    def echo(exchange: Exchange) -> None:
        exchange.send(ResponseHead(200), b"".join(exchange.body()))

    origins = origins_of(start(echo).url)
    assert got(origins, "POST", body) == (200, b"abc")
    origins.close()


def test_a_response_that_was_not_taken_whole_ends_its_connection(start: Callable[..., Origin]) -> None:
    origin = start(saying(b"x" * 3_000_000))
    origins = origins_of(origin.url)
    fetched = fetch(origins, "GET", request_lines("GET", "/", HOST))
    fetched.close()
    assert got(origins)[1] == b"x" * 3_000_000
    assert origin.server is not None and origin.server.counters.accepted == 2
    origins.close()


def test_a_connection_that_its_origin_has_closed_is_not_used(start: Callable[..., Origin]) -> None:
    origin = start(saying(b"one"))
    origins = origins_of(origin.url)
    assert got(origins) == (200, b"one")
    origin.stop()
    origin.start(origin.port)
    assert got(origins, "POST", b"x") == (200, b"one")
    origins.close()


def test_a_request_is_repeated_only_where_that_does_no_harm() -> None:
    seen = []

    def once_then_gone(sock: Any) -> None:
        """Answer, keep the connection, and break it when the next request has come."""
        seen.append(1)
        sock.sendall(OK + b"Content-Length: 2\r\n\r\nok")
        sock.recv(65536)

    for method, expected in (("GET", (200, b"ok")), ("POST", None)):
        with raw_origin(once_then_gone) as url:
            origins = origins_of(url)
            assert got(origins) == (200, b"ok")
            if expected:
                assert got(origins, method) == expected
            else:
                with pytest.raises(FetchFailed):
                    got(origins, method, b"x")
            origins.close()


def test_another_origin_answers_for_one_that_is_dead(start: Callable[..., Origin]) -> None:
    origin = start(saying(b"alive"))
    origins = origins_of(dead_url(), origin.url, max_failures=2)
    assert [got(origins, "POST", b"x") for _ in range(10)] == [(200, b"alive")] * 10
    dead = origins.all[0]
    assert dead.failed == 2 and not dead.is_up(0.0)
    origins.close()


def test_a_request_with_a_streamed_body_goes_to_another_origin_only_before_it_was_begun(
    start: Callable[..., Origin],
) -> None:
    origin = start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    origins = origins_of(dead_url(), origin.url)
    for _ in range(4):
        assert got(origins, "POST", iter([b"a", b"b"])) == (200, b"ab")
    origins.close()


def test_requests_are_spread(start: Callable[..., Origin]) -> None:
    made = [start(saying(b"")) for _ in range(3)]
    origins = origins_of(*(origin.url for origin in made))
    for _ in range(30):
        got(origins)
    assert [len(origin.requests) for origin in made] == [10, 10, 10]
    origins.close()


def test_all_dead_is_a_bad_gateway() -> None:
    origins = origins_of(dead_url(), dead_url())
    with pytest.raises(FetchFailed, match=r"the origin 127.0.0.1:\d+ of a.example failed: no connection") as raised:
        got(origins)
    assert raised.value.status == 502


def test_one_that_says_nothing_is_a_timeout() -> None:
    with raw_origin(lambda sock: gevent.sleep(30)) as url:
        origins = origins_of(url, first_byte_seconds=0.2)
        with pytest.raises(FetchFailed, match=r"did not answer: no response within 0.2 s") as raised:
            got(origins)
        assert raised.value.status == 504


def test_one_that_says_a_byte_now_and_then_is_a_timeout() -> None:
    def drip(sock: Any) -> None:
        for byte in OK + b"X: " + b"a" * 1000:
            sock.sendall(bytes([byte]))
            gevent.sleep(0.05)

    with raw_origin(drip) as url, pytest.raises(FetchFailed) as raised:
        got(origins_of(url, first_byte_seconds=0.3))
    assert raised.value.status == 504


def reset(data: bytes) -> Callable[[Any], None]:
    def answer(sock: Any) -> None:
        sock.sendall(data)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"garbage\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46", OK, reset(b""),
        OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", OK + b"Transfer-Encoding: x\r\n\r\n",
    ],
)  # fmt: skip
def test_something_else_than_a_response_is_a_bad_gateway(answer: Any) -> None:
    with raw_origin(answer) as url, pytest.raises(FetchFailed) as raised:
        got(origins_of(url))
    assert raised.value.status == 502


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 10\r\n\r\nabc", OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzzz\r\n", reset(OK + b"Content-Length: 10\r\n\r\nabc"),
    ],
)  # fmt: skip
def test_a_body_that_breaks_off_is_known_to_be_broken(answer: Any) -> None:
    with raw_origin(answer) as url, pytest.raises((TruncatedBody, FetchFailed)):
        got(origins_of(url))


def test_a_body_that_stalls_is_known_to_be_broken() -> None:
    def stall(sock: Any) -> None:
        sock.sendall(OK + b"Content-Length: 10\r\n\r\nabc")
        gevent.sleep(30)

    with raw_origin(stall) as url, pytest.raises(TruncatedBody, match="stalled"):
        got(origins_of(url, idle_seconds=0.2))


def test_more_than_was_announced_is_cut_and_not_taken_for_the_next_response() -> None:
    with raw_origin(OK + b"Content-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil") as url:
        origins = origins_of(url)
        assert [got(origins) for _ in range(3)] == [(200, b"ab")] * 3


@contextmanager
def origin_that_adds(more: bytes, certificates: Certificates | None = None) -> Iterator[tuple[OriginUrl, Event]]:
    """An origin that keeps connections, and after each response sends ``more``, which nobody has asked for."""
    added = Event()

    def serve(sock: Any, peer: Any) -> None:
        if certificates is not None:
            sock = certificates.context.wrap_socket(sock, server_side=True)
        with sock:
            while sock.recv(65536):
                sock.sendall(OK + b"Content-Length: 2\r\n\r\nab")
                gevent.sleep(0.01)
                sock.sendall(more)
                added.set()

    server = StreamServer(("127.0.0.1", 0), serve)
    server.start()
    try:
        yield OriginUrl("https" if certificates else "http", "127.0.0.1", int(server.server_port or 0)), added
    finally:
        server.stop(0.0)


@pytest.mark.parametrize("is_tls", [False, True])
def test_bytes_that_come_after_a_response_are_not_the_next_response(tmp_path: Path, is_tls: bool) -> None:
    certificates = Certificates([make_certificate(tmp_path, "origin.example")]) if is_tls else None
    with origin_that_adds(OK + b"Content-Length: 4\r\n\r\nevil", certificates) as (url, added):
        origins = origins_of(url, verify=False)
        for _ in range(5):
            assert got(origins) == (200, b"ab")
            assert added.wait(30.0)
            added.clear()
        origins.close()


@pytest.mark.parametrize(
    ("more", "connections"),
    [
        pytest.param(OK + b"Content-Length: 4\r\n\r\nevil", 4, id="a response"),
        pytest.param(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", 2, id="a timeout"),
    ],
)
def test_an_origin_that_has_said_more_than_it_was_asked_has_its_connections_kept_no_more(
    more: bytes, connections: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It might say it when the next request has just been sent."""
    accepted: list[Any] = []
    answered, added = Event(), Event()

    def serve(sock: Any, peer: Any) -> None:
        accepted.append(sock)
        is_first = len(accepted) == 1
        with sock:
            while sock.recv(65536):
                sock.sendall(OK + b"Content-Length: 2\r\n\r\nab")
                if is_first and answered.wait(30.0):
                    sock.sendall(more)
                    added.set()

    server = StreamServer(("127.0.0.1", 0), serve)
    server.start()
    try:
        origins = origins_of(OriginUrl("http", "127.0.0.1", int(server.server_port or 0)))
        assert got(origins) == (200, b"ab")
        answered.set()
        assert added.wait(30.0)
        assert [got(origins) for _ in range(3)] == [(200, b"ab")] * 3
        assert len(accepted) == connections
        assert ("sent more than its response has" in caplog.text) is (connections == 4)
        origins.close()
    finally:
        server.stop(0.0)


def test_a_connection_is_not_used_again_after_head_whose_body_may_still_come(start: Callable[..., Origin]) -> None:
    origin = start(saying(b"hello"))
    origins = origins_of(origin.url)
    assert [got(origins, "HEAD") for _ in range(3)] == [(200, b"")] * 3
    assert origin.server is not None and origin.server.counters.accepted == 3
    origins.close()


def test_fields_with_line_ends_never_leave() -> None:
    for target, fields in [("/", [("X", "a\r\nY: b")]), ("/\r\nX: y", []), ("/", [("X\n", "a")]), ("/", [("X", "\0")])]:
        with pytest.raises(ValueError, match="line end"):
            request_lines("GET", target, [*HOST, *fields])
    for lines in (
        b"",
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n",
        b"PUT / HTTP/1.1\r\n",
        b"GET /\nX\r\n",
    ):
        with pytest.raises(FetchFailed, match="none"):
            request_head("GET", lines, 0)


def test_a_short_body_is_at_hand_with_its_head(start: Callable[..., Origin]) -> None:
    origins = origins_of(start(saying(b"x" * 200_000)).url)
    fetched = fetch(origins, "GET", request_lines("GET", "/", HOST))
    assert fetched.response.body_at_hand(256 * 1024, 0.0) == b"x" * 200_000
    fetched.close()
    origins.close()


def test_a_slow_body_does_not_keep_its_head_waiting() -> None:
    go = Event()

    def slowly(sock: Any) -> None:
        sock.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        go.wait(30.0)
        sock.sendall(b"1\r\nb\r\n0\r\n\r\n")

    with raw_origin(slowly) as url:
        origins = origins_of(url)
        fetched: Fetched = fetch(origins, "GET", request_lines("GET", "/", HOST))
        assert fetched.response.body_at_hand(256 * 1024, 0.01) == b"a"
        go.set()
        assert b"".join(fetched.response.body()) == b"b"
        fetched.close()
        origins.close()


@pytest.mark.parametrize(("site", "is_trusted"), [({}, False), ({"ca": True}, True), ({"verify": False}, True)])
def test_the_certificate_of_an_origin_is_checked(tmp_path: Path, site: dict[str, Any], is_trusted: bool) -> None:
    made = make_certificate(tmp_path, "origin.example")
    certificates = Certificates([made])
    listener = listen("127.0.0.1:0", name="origin")
    port = listener.getsockname()[1]
    server = HttpServer(saying(b"secret"), Limits())
    server.serve_on(listener, lambda: certificates.context)
    options = {**site, "ca": made.chain} if "ca" in site else site
    origins = origins_of(OriginUrl("https", "127.0.0.1", port), host="origin.example", **options)
    if is_trusted:
        assert [got(origins) for _ in range(3)] == [(200, b"secret")] * 3
        assert server.counters.accepted == 1
    else:
        with pytest.raises(FetchFailed, match="certificate verify failed"):
            got(origins)
    origins.close()
    server.stop(1.0)


def test_probes_take_an_origin_out_and_bring_it_back(start: Callable[..., Origin]) -> None:
    status = [200]
    origin = start(lambda exchange: exchange.send(ResponseHead(status[0], Headers()), b""))
    origins = origins_of(origin.url, health_target="/health", health_seconds=0.05)
    checks = HealthChecks(origins)
    checks.start()
    eventually(lambda: len(origin.requests) >= 2)
    assert origins.all[0].is_healthy and origin.requests[0].target == b"/health"
    status[0] = 500
    eventually(lambda: not origins.all[0].is_healthy)
    status[0] = 204
    eventually(lambda: origins.all[0].is_healthy)
    checks.stop()
