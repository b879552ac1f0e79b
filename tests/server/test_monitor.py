"""Pages over HTTP: what is answered to whom."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import parse_headers

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


def ask(monitor: Monitor, request: bytes) -> tuple[int, dict[str, str], bytes]:
    host, port = monitor.url.removeprefix("http://").split(":")
    with gevent.Timeout(10), socket.create_connection((host, int(port))) as connection:
        connection.sendall(request + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as file:
            status = int(file.readline().split()[1])
            return status, dict(parse_headers(file).items()), file.read()


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


def test_a_client_that_says_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch, monitor: Monitor) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.05)
    host, port = monitor.url.removeprefix("http://").split(":")
    with gevent.Timeout(10), socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /top")
        while connection.recv(1000):
            pass


def test_an_address_that_cannot_be_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"router.http = '192\.0\.2\.1:1': cannot listen there: "):
        Monitor("192.0.2.1:1", {})
    with pytest.raises(ConfigError, match=r"router.http = 'no\.such\.host\.invalid:1'"):
        Monitor("no.such.host.invalid:1", {})
