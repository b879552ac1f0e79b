"""The HTTP server, as services run it: in a green thread that is killed and waited for."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gevent import socket
from greenlet import GreenletExit


@pytest.fixture
def wsgi(eventlet: Any) -> Any:
    return importlib.import_module("eventlet.wsgi")


@pytest.fixture
def serve(eventlet: Any, wsgi: Any) -> Iterator[Callable[..., Any]]:
    """Starts a server; gives its port, its green thread, its socket and its log."""
    threads: list[Any] = []

    def serve(site: Any, **options: Any) -> tuple[int, Any, Any, io.StringIO]:
        log = options.setdefault("log", io.StringIO())
        sock = eventlet.listen(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        threads.append(eventlet.spawn(wsgi.server, sock, site, **options))
        return port, threads[-1], sock, log

    yield serve
    for thread in threads:
        thread.kill()


def hello(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    body = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def request(port: int, text: str = "GET /path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(text.encode())
        received = b""
        while chunk := sock.recv(4096):
            received += chunk
    return received.decode()


def test_a_request_is_answered_and_logged(serve: Any):
    port, _, _, log = serve(hello)
    answer = request(port)
    assert answer.startswith("HTTP/1.1 200 OK") and answer.endswith("GET /path")
    assert f"wsgi starting up on http://127.0.0.1:{port}/" in log.getvalue()
    assert '"GET /path HTTP/1.1" 200 ' in log.getvalue()


def test_the_log_can_have_another_form_or_be_quiet(serve: Any):
    port, _, _, log = serve(hello, log_format="%(status_code)s for %(client_ip)s")
    request(port, "GET / HTTP/1.0\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2\r\n\r\n")
    assert "200 for 10.0.0.1,10.0.0.2,127.0.0.1\n" in log.getvalue()
    port, _, _, log = serve(hello, log_output=False)
    request(port)
    assert log.getvalue() == ""


def test_a_broken_application_is_a_500_and_the_next_request_is_served(serve: Any, capsys: pytest.CaptureFixture[str]):
    def site(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if environ["PATH_INFO"] == "/broken":
            raise KeyError("secret")
        return hello(environ, start_response)

    port, *_ = serve(site)
    answer = request(port, "GET /broken HTTP/1.0\r\n\r\n")
    assert " 500 " in answer and "secret" not in answer
    assert "KeyError" in capsys.readouterr().err
    assert " 200 " in request(port)


def test_requests_are_served_at_the_same_time(eventlet: Any, serve: Any):
    both = eventlet.Event()
    arrived: list[int] = []

    def site(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        arrived.append(1)
        if len(arrived) == 2:
            both.send()
        both.wait()
        return hello(environ, start_response)

    port, *_ = serve(site, custom_pool=eventlet.GreenPool(2))
    answers = [eventlet.spawn(request, port) for _ in range(2)]
    assert all("200 OK" in answer.wait() for answer in answers)


def test_a_connection_serves_several_requests_unless_keepalive_is_off(serve: Any):
    two = "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    port, *_ = serve(hello)
    assert request(port, two).count("200 OK") == 2
    port, *_ = serve(hello, keepalive=False)
    assert request(port, two).count("200 OK") == 1


def test_a_killed_server_ends_what_runs_and_idle_connections_do_not_hold_it(eventlet: Any, serve: Any):
    entered, finish = eventlet.Event(), eventlet.Event()

    def site(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if environ["PATH_INFO"] == "/slow":
            entered.send()
            finish.wait()
        return hello(environ, start_response)

    port, thread, sock, log = serve(site)
    idle = socket.create_connection(("127.0.0.1", port), timeout=10)
    idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in idle.recv(4096)
    answer = eventlet.spawn(request, port, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    entered.wait()
    thread.kill()
    assert not thread.dead
    assert idle.recv(4096) == b""
    idle.close()
    finish.send()
    assert answer.wait().endswith("GET /slow")
    with pytest.raises(GreenletExit):
        thread.wait()
    assert sock.closed and "wsgi exited" in log.getvalue()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_closing_the_socket_ends_the_server(eventlet: Any, serve: Any):
    _, thread, sock, _ = serve(hello)
    eventlet.sleep(0)
    sock.close()
    with eventlet.Timeout(5):
        assert thread.wait() is None


def test_hooks_of_a_request_run_after_it(eventlet: Any, serve: Any):
    ran = eventlet.Event()

    def site(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        environ["eventlet.posthooks"].append((lambda env, *args, **kw: ran.send((args, kw)), (1,), {"two": 2}))
        return hello(environ, start_response)

    port, *_ = serve(site, environ={"extra": "value"})
    request(port)
    assert ran.wait() == ((1,), {"two": 2})


def test_a_client_that_says_nothing_is_dropped_after_the_timeout(serve: Any):
    port, *_ = serve(hello, socket_timeout=0.01)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        assert sock.recv(1) == b""


def test_the_server_tells_when_it_has_started(eventlet: Any, wsgi: Any, serve: Any):
    started = eventlet.Event()
    serve(hello, server_event=started)
    assert isinstance(started.wait(), wsgi.Server)


def test_the_body_of_a_request_is_read(serve: Any):
    def site(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        body: bytes = environ["wsgi.input"].read()
        assert environ["wsgi.multithread"] is True and environ["wsgi.url_scheme"] == "http"
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body[::-1]]

    port, *_ = serve(site)
    answer = request(port, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
    assert answer.endswith("\r\n\r\ncba")
