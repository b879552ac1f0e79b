"""Connections of clients: many requests in order, all framings, and peers that are slow, greedy or gone."""

from __future__ import annotations

import gevent
import pytest

from rpcmq.errors import ConfigError
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.server import listen
from rpcmq.testing import eventually
from tests.proxy.http.serving import HEAD, SECONDS, echo, everything, serving

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def bodies_in(data: bytes) -> list[bytes]:
    """The bodies of responses that have a Content-Length."""
    bodies = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        bodies.append(data[:length])
        data = data[length:]
    return bodies


def test_requests_behind_one_another_are_answered_in_order() -> None:
    with serving() as served:
        requests = b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(200))
        assert bodies_in(served.said(requests + LAST)) == [b"GET /%d " % number for number in range(200)] + [
            b"GET /last "
        ]


def test_a_body_is_read_and_the_connection_goes_on() -> None:
    with serving() as served:
        post = b"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        assert bodies_in(served.said(post + LAST)) == [b"POST /p abc", b"GET /last "]


def test_a_body_that_nobody_reads_is_passed_over() -> None:
    with serving(lambda exchange: exchange.send(HEAD, b"ok")) as served:
        post = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 27\r\n\r\n" + GET
        assert bodies_in(served.said(post + LAST)) == [b"ok", b"ok"]


def test_a_client_that_waits_with_its_body_is_told_to_go_on() -> None:
    with serving() as served, served.connected() as sock:
        sock.sendall(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        assert everything(sock).endswith(b"POST / abc")


def test_a_body_that_was_not_asked_for_is_never_taken_for_a_request() -> None:
    with serving(lambda exchange: exchange.send_error(403, "No.")) as served, served.connected() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 27\r\nExpect: 100-continue\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 403"
        sock.sendall(GET)
        said = everything(sock)
        assert b"Connection: close" in said and b"HTTP/1.1" not in said


def chunks(exchange: Exchange) -> None:
    exchange.start(HEAD, None)
    for piece in (b"abc", b"", b"de"):
        exchange.write(piece)
    exchange.finish()


@pytest.mark.parametrize(
    ("request_bytes", "end", "has"),
    [
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            b"chunked",
        ),
        (b"GET / HTTP/1.0\r\n\r\n", b"\r\n\r\nabcde", b"Connection: close"),
        (b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"\r\n\r\n", b"chunked"),
    ],
)
def test_a_body_of_unknown_length(request_bytes: bytes, end: bytes, has: bytes) -> None:
    with serving(chunks) as served:
        said = served.said(request_bytes)
        assert said.endswith(end) and has in said


def test_head_has_the_length_and_no_body() -> None:
    with serving() as served:
        said = served.said(b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n" + LAST)
        assert b"Content-Length: 8\r\n\r\nHTTP/1.1 200" in said


def test_http_1_0_may_keep_its_connection() -> None:
    with serving() as served:
        said = served.said(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\n")
        assert said.count(b"Connection: keep-alive") == 1 and said.count(b"Connection: close") == 1


@pytest.mark.parametrize("length", [None, 10])
def test_a_response_that_breaks_off_does_not_look_whole(length: int | None) -> None:
    def breaking(exchange: Exchange) -> None:
        exchange.start(HEAD, length)
        exchange.write(b"abc")
        exchange.finish() if length else exchange.check_client()

    with serving(breaking) as served:
        said = served.said(GET)
        assert not said.endswith(b"0\r\n\r\n") and said.count(b"HTTP/1.1") <= 1


def test_a_handler_that_fails_ends_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def failing(exchange: Exchange) -> None:
        if exchange.request.target == b"/fail":
            raise ZeroDivisionError
        echo(exchange)

    with serving(failing) as served, served.connected() as other:
        assert served.said(b"GET /fail HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 500 ")
        other.sendall(LAST)
        assert everything(other).endswith(b"GET /last ")
    assert "ZeroDivisionError" in caplog.text


def test_refusals_come_after_the_answers_before_them() -> None:
    with serving() as served:
        said = served.said(GET + b"GET / HTTP/1.1\r\n\r\n" + GET)
        assert said.count(b"HTTP/1.1 200") == 1 and b"HTTP/1.1 400 " in said and b"no Host field" in said
        assert served.server.counters.refused_requests == {400: 1}


def test_a_head_has_a_time() -> None:
    with serving(header_seconds=0.3) as served, served.connected() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHo")
        assert everything(sock).startswith(b"HTTP/1.1 408 ")
        assert served.server.counters.too_slow == 1


def test_a_client_that_sends_a_byte_now_and_then_gains_nothing() -> None:
    with serving(header_seconds=0.5) as served, served.connected() as sock:
        with gevent.Timeout(SECONDS):
            try:
                for byte in b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000:
                    sock.sendall(bytes([byte]))
                    gevent.sleep(0.02)
            except OSError:
                pass  # closed, as it should be
        eventually(lambda: served.server.counters.too_slow == 1)


def test_silence_ends_a_connection() -> None:
    with serving(idle_seconds=0.3) as served, served.connected() as sock:
        sock.sendall(GET)
        assert bodies_in(everything(sock)) == [b"GET / "]


def test_a_body_has_a_lowest_rate() -> None:
    with serving(min_rate=1000, rate_seconds=0.5) as served, served.connected() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc")
        assert everything(sock).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_nobody_wants_and_that_comes_too_slowly_ends_the_connection_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(exchange: Exchange) -> None:
        exchange.send(HEAD, b"")

    with serving(refuse, min_rate=1000, rate_seconds=0.2) as served:
        answer = served.said(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\n")
        eventually(lambda: served.server.counters.too_slow == 1)
    assert not [record for record in caplog.records if record.name.startswith("rpcmq.")]


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    sent = []

    def endless(exchange: Exchange) -> None:
        exchange.start(HEAD, None)
        while True:
            exchange.write(b"x" * 100_000)
            sent.append(1)

    with serving(endless, min_rate=1000, rate_seconds=0.5) as served, served.connected() as sock:
        sock.sendall(GET)
        eventually(lambda: served.server.counters.too_slow == 1)
        eventually(lambda: served.server.open_connections == 0)
        assert len(sent) < 1000


def test_connections_have_bounds() -> None:
    with serving(connections_for_address=2) as served, served.connected() as one, served.connected() as two:
        for sock in (one, two):
            sock.sendall(GET)
            assert sock.recv(1000)
        assert served.said(b"").startswith(b"HTTP/1.1 503 ")
        assert served.server.counters.refused_connections == 1
        one.close()
        eventually(lambda: served.server.open_connections == 1)
        assert served.said(LAST).startswith(b"HTTP/1.1 200 ")


def test_a_stop_lets_what_runs_be_answered() -> None:
    begun, go = gevent.event.Event(), gevent.event.Event()

    def slow(exchange: Exchange) -> None:
        begun.set()
        go.wait(SECONDS)
        echo(exchange)

    with serving(slow) as served, served.connected() as busy, served.connected() as idle:
        busy.sendall(GET)
        assert begun.wait(SECONDS)
        eventually(lambda: served.server.open_connections == 2)
        stopping = gevent.spawn(served.server.stop, SECONDS)
        assert everything(idle) == b""
        go.set()
        assert b"200" in everything(busy)
        assert stopping.get(timeout=SECONDS) == 0


def test_an_address_in_use_is_a_clear_error() -> None:
    listener = listen("127.0.0.1:0", name="test")
    taken = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConfigError, match=r"front\.http = '127.0.0.1:\d+': cannot listen there"):
        listen(taken, name="front.http")
    listener.close()


def test_requests_that_came_together_do_not_keep_others_waiting() -> None:
    answered: list[bytes] = []

    def answer(exchange: Exchange) -> None:
        answered.append(exchange.request.target)
        exchange.send(HEAD, b"")

    with serving(answer) as served, served.connected() as greedy, served.connected() as other:
        greedy.sendall(b"GET /greedy HTTP/1.1\r\nHost: a\r\n\r\n" * 500)
        other.sendall(b"GET /other HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert everything(other).startswith(b"HTTP/1.1 200")
        # Not after all 500: those that were read first may all be answered before it.
        assert answered.index(b"/other") < 100
