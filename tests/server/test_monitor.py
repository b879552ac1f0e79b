"""Pages over HTTP: what is answered to whom."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import parse_headers
from socket import gethostname

import gevent
import pytest
from gevent import socket

from rpcmq.errors import ConfigError
from rpcmq.server import monitor as module
from rpcmq.server.monitor import Monitor


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    pages = {"/healthz": lambda: (503, {"status": "draining"}), "/topics": lambda: (200, [1])}
    monitor = Monitor("127.0.0.1:0", pages)
    yield monitor
    monitor.close()


def connect(monitor: Monitor) -> socket.socket:
    host, port = monitor.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)))


def ask(monitor: Monitor, request: bytes, host: bytes = b"localhost") -> tuple[int, dict[str, str], bytes]:
    with gevent.Timeout(30), connect(monitor) as connection:
        connection.sendall(request + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        return answer_on(connection)


def answer_on(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    with connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        return status, dict(parse_headers(file).items()), file.read()


def ends(connection: socket.socket) -> bool:
    """Return whether the connection ends within 10 s; what comes before is read."""
    with gevent.Timeout(30):
        try:
            while connection.recv(1000):
                pass
        except ConnectionError:
            pass
    return True


def test_a_page(monitor: Monitor) -> None:
    status, headers, body = ask(monitor, b"GET /topics")
    assert (status, headers["Content-Type"], body) == (200, "application/json", b"[1]\n")
    assert ask(monitor, b"GET /topics?x=1")[0] == 200
    assert ask(monitor, b"GET /healthz")[::2] == (503, b'{"status": "draining"}\n')
    assert ask(monitor, b"GET /")[::2] == (200, b'{"pages": ["/healthz", "/topics"]}\n')


def test_head_has_the_length_and_no_body(monitor: Monitor) -> None:
    status, headers, body = ask(monitor, b"HEAD /topics")
    assert (status, headers["Content-Length"], body) == (200, "4", b"")


def test_an_unknown_page_is_404_and_lists_those_there_are(monitor: Monitor) -> None:
    status, headers, body = ask(monitor, b"GET /nope")
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert body == b'{"error": "no page /nope", "pages": ["/healthz", "/topics"]}\n'


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS"])
def test_pages_are_read_only(monitor: Monitor, method: bytes) -> None:
    status, headers, body = ask(monitor, method + b" /topics")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert b"read-only" in body


@pytest.mark.parametrize("said", [b"", b"GET /top", b"GET /topics HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_client_that_does_not_finish_its_request_is_cut(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor, said: bytes
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.05)
    with connect(monitor) as connection:
        connection.sendall(said)
        assert ends(connection)


def test_the_time_is_for_the_whole_request_however_often_a_byte_comes(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.3)

    def trickle() -> None:
        for byte in b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000:
            connection.sendall(bytes([byte]))
            gevent.sleep(0.01)

    with connect(monitor) as connection:
        writer = gevent.spawn(trickle)
        assert ends(connection)
        with gevent.Timeout(30):
            writer.join()
        assert isinstance(writer.exception, OSError)


def test_a_client_that_does_not_read_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", 1.0)
    monitor = Monitor("127.0.0.1:0", {"/big": lambda: (200, "x" * (64 << 20))})
    with connect(monitor) as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with gevent.Timeout(30):
            while not monitor._server._open:
                gevent.sleep(0.01)
            while monitor._server._open:
                gevent.sleep(0.01)
        assert ends(connection)
    monitor.close()


def test_connections_are_bounded_and_the_oldest_of_who_has_most_is_cut(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor
) -> None:
    monkeypatch.setattr(module, "_CONNECTIONS", 4)
    half_open = []
    for _ in range(12):
        half_open.append(connect(monitor))
        half_open[-1].sendall(b"GET /top")
        # Who asks properly is answered, however many hold a place.
        assert ask(monitor, b"GET /topics")[0] == 200
    for connection in half_open[:8]:
        assert ends(connection)
    assert sum(map(len, monitor._server._open.values())) <= 4
    for connection in half_open:
        connection.close()


def test_a_host_with_one_connection_is_not_cut_for_one_with_many(monitor: Monitor) -> None:
    pairs = [socket.socketpair() for _ in range(5)]
    server = monitor._server
    for host, (one, _) in zip(("a", "b", "b", "b", "c"), pairs, strict=True):
        server._open[host][one] = None
    server._cut_one()
    assert [len(server._open[host]) for host in "abc"] == [1, 2, 1]
    assert pairs[1][1].recv(1) == b""
    server._open.clear()
    for pair in pairs:
        for end in pair:
            end.close()


LONG = [
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1",
    b"GET /topics HTTP/1.1\r\nX: " + b"x" * 20_000,
    b"GET /topics HTTP/1.1" + b"".join(b"\r\nX%d: %s" % (i, b"x" * 200) for i in range(90)),
]


@pytest.mark.parametrize("request_line", LONG, ids=["path", "header", "headers"])
def test_a_request_is_bounded_in_bytes(monitor: Monitor, request_line: bytes) -> None:
    with gevent.Timeout(30), connect(monitor) as connection:
        connection.sendall(request_line + b"\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000).split()[1] in (b"400", b"414")
        assert ends(connection)


def test_a_body_is_not_waited_for(monitor: Monitor) -> None:
    for header in (b"Content-Length: 10000000000", b"Transfer-Encoding: chunked"):
        with gevent.Timeout(30), connect(monitor) as connection:
            connection.sendall(b"POST /topics HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
            status, headers, _ = answer_on(connection)
            assert (status, headers["Connection"]) == (405, "close")


@pytest.mark.parametrize("further", [1, 5000], ids=["in one segment", "more than is read"])
def test_requests_after_the_first_leave_its_answer_whole(further: int) -> None:
    """A connection that is closed with something unread is reset, and what is on its way is lost."""
    monitor = Monitor("127.0.0.1:0", {"/big": lambda: (200, "x" * 3_000_000)})
    with gevent.Timeout(30), connect(monitor) as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n" * (1 + further))
        status, headers, body = answer_on(connection)
    assert (status, headers["Connection"], len(body)) == (200, "close", 3_000_000)
    monitor.close()


def test_a_body_that_comes_is_read_before_the_connection_ends(monitor: Monitor) -> None:
    with gevent.Timeout(30), connect(monitor) as connection:
        head = b"POST /topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n"
        connection.sendall(head + b"x" * 300_000)
        assert answer_on(connection)[0] == 405


def test_who_keeps_a_connection_open_after_its_answer_loses_its_place(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor
) -> None:
    monkeypatch.setattr(module, "_LAST_SECONDS", 0.1)
    with gevent.Timeout(30), connect(monitor) as connection:
        connection.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer_on(connection)[0] == 200
        while monitor._server._open:
            gevent.sleep(0.01)


OWN = (
    b"localhost", b"LOCALHOST:80", b"localhost.", b"127.0.0.1", b"127.0.0.1:7780", b"[::1]", b"[::1]:7780",
    b"10.1.2.3:1", b"", b"router-1.example", b"router-1.example:7780", gethostname().encode(),
)  # fmt: skip
OTHERS = (b"evil.example", b"evil.example:7780", b"localhost.evil.example", b"127.0.0.1.evil.example")


@pytest.mark.parametrize("host", OWN)
def test_names_of_this_router_are_answered(host: bytes) -> None:
    monitor = Monitor("127.0.0.1:0", {"/topics": lambda: (200, [1])}, ["router-1.example"])
    assert ask(monitor, b"GET /topics", host)[0] == 200
    monitor.close()


@pytest.mark.parametrize("host", OTHERS)
def test_a_name_of_somebody_else_is_refused(monitor: Monitor, host: bytes) -> None:
    """A page of that site, whose name now stands for this machine, asks through somebody's browser."""
    status, _, body = ask(monitor, b"GET /topics", host)
    assert status == 421
    assert host in body and b"router.http_hosts" in body


def test_an_address_that_cannot_be_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"router.http = '192\.0\.2\.1:1': cannot listen there: "):
        Monitor("192.0.2.1:1", {})
    with pytest.raises(ConfigError, match=r"router.http = 'no\.such\.host\.invalid:1'"):
        Monitor("no.such.host.invalid:1", {})
