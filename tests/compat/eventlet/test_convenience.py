from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess


def test_connect_and_listen(eventlet: Any):
    with eventlet.listen(("127.0.0.1", 0)) as server:
        client = eventlet.connect(server.getsockname(), bind=("127.0.0.2", 0))
        accepted, peer = server.accept()
        assert peer[0] == "127.0.0.2"
        accepted.sendall(b"hello")
        assert client.recv(10) == b"hello"
        client.close()
        accepted.close()


def test_nobody_there(eventlet: Any, free_port: int):
    with pytest.raises(ConnectionRefusedError):
        eventlet.connect(("127.0.0.1", free_port))


def echo(conn: Any, _: Any) -> None:
    while data := conn.recv(100):
        conn.sendall(data)


def test_serve_handles_each_connection_and_closes_it(eventlet: Any):
    server = eventlet.listen(("127.0.0.1", 0))
    thread = eventlet.spawn(eventlet.serve, server, echo)
    clients = [eventlet.connect(server.getsockname()) for _ in range(2)]
    for client in clients:
        client.sendall(b"x")
    for client in clients:
        assert client.recv(1) == b"x"
        client.close()
    thread.kill()
    server.close()


def test_a_handler_can_stop_the_server(eventlet: Any):
    def handle(conn: Any, _: Any) -> None:
        conn.sendall(b"bye")
        raise eventlet.StopServe

    server = eventlet.listen(("127.0.0.1", 0))
    thread = eventlet.spawn(eventlet.serve, server, handle)
    client = eventlet.connect(server.getsockname())
    assert client.recv(3) == b"bye" and client.recv(1) == b""
    assert thread.wait() is None
    client.close()
    server.close()


def test_an_error_of_a_handler_ends_the_server(eventlet: Any, capsys: pytest.CaptureFixture[str]):
    def handle(conn: Any, _: Any) -> None:
        raise KeyError("handler")

    server = eventlet.listen(("127.0.0.1", 0))
    thread = eventlet.spawn(eventlet.serve, server, handle)
    eventlet.connect(server.getsockname()).close()
    with pytest.raises(KeyError, match="handler"):
        thread.wait()
    server.close()
    assert "KeyError" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls(eventlet: Any, tmp_path: Path):
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert]
    subprocess.run([*command, "-subj", "/CN=localhost"], check=True, stderr=subprocess.DEVNULL)
    server = eventlet.wrap_ssl(eventlet.listen(("127.0.0.1", 0)), certfile=cert, keyfile=key, server_side=True)
    thread = eventlet.spawn(eventlet.serve, server, echo)
    client = eventlet.wrap_ssl(eventlet.connect(server.getsockname()), ca_certs=cert, cert_reqs=2)
    client.sendall(b"secret")
    assert client.recv(6) == b"secret"
    client.close()
    thread.kill()
    server.close()
