"""Tunnels for WebSocket, the access log, metrics, and who may purge."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq.proxy.front import websocket
from rpcmq.proxy.settings import AccessLogSettings
from rpcmq.testing import eventually
from tests.proxy.world import (
    BrokenOff,
    World,
    ask,
    connect_to,
    counting,
    raw_origin,
    request_bytes,
    saying,
)

pytestmark = pytest.mark.integration


def test_websocket_is_tunnelled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[int, int]] = []
    copy = websocket._copy

    def noting(source: Any, *others: Any) -> bool:
        kept.append(
            (
                source.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                source.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            )
        )
        return copy(source, *others)

    monkeypatch.setattr(websocket, "_copy", noting)

    def switch(sock: Any) -> None:
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        while data := sock.recv(1000):
            sock.sendall(data[::-1])

    with raw_origin(switch) as url:
        world.configure(url)
        front_end = world.front_end()
        with connect_to(front_end) as sock:
            fields = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "x")]
            sock.sendall(request_bytes("GET", "/ws", fields))
            seen = b""
            while not seen.endswith(b"\r\n\r\n"):
                seen += sock.recv(1)
            assert seen.startswith(b"HTTP/1.1 101 ")
            for message in (b"abc", b"\x00\xff"):
                sock.sendall(message)
                assert sock.recv(10) == message[::-1]
        eventually(lambda: front_end.status()["connections"] == 0)
    # Of both sides: a host that is gone says nothing, as one that has nothing to say.
    assert kept == [(1, 60)] * 2


def test_a_refused_websocket_is_an_ordinary_answer(world: World) -> None:
    body = bytes(1 << 20)
    front_end = world.start(saying(body, (), 403))
    reply = ask(front_end, "/ws", [("Connection", "Upgrade"), ("Upgrade", "websocket")])
    assert reply.status == 403 and reply.body == body


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        pytest.param(502, b"220 mail.example ESMTP\r\n\r\n", id="another protocol"),
        pytest.param(502, b"", id="an end"),
        pytest.param(502, b"HTTP/1.1 101 Switching\r\nX: " + b"x" * 70_000, id="a head without an end"),
        pytest.param(504, None, id="a byte now and then"),
    ],
)
def test_an_origin_that_does_not_answer_a_websocket_is_a_bad_gateway(
    world: World, status: int, answer: bytes | None
) -> None:
    def trickle(sock: Any) -> None:
        with suppress(OSError):
            while True:
                sock.sendall(b"H")
                gevent.sleep(0.05)

    def say(sock: Any) -> None:
        sock.sendall(answer)
        if answer:
            sock.recv(1)  # nothing is sent while it waits

    with raw_origin(trickle if answer is None else say) as url:
        world.configure(url, first_byte_seconds=0.5 if answer is None else 30)
        front_end = world.front_end()
        fields = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
        assert ask(front_end, "/ws", fields).status == status


@pytest.mark.parametrize("form", ["combined", "json"])
def test_the_access_log_has_a_line_for_each_request(world: World, tmp_path: Path, form: str) -> None:
    path = tmp_path / "access.log"
    world.configure(world.origin(counting()).url)
    world.settings = world.settings.__class__(
        front=world.settings.front, sites=world.settings.sites, access_log=AccessLogSettings(str(path), form)
    )
    front_end = world.front_end()
    world.fetcher()
    for _ in range(2):
        ask(front_end, "/a?b", [("User-Agent", 'x"y\xe9')])
    eventually(lambda: len(path.read_text().splitlines()) == 2)
    lines = path.read_text().splitlines()
    if form == "json":
        assert [json.loads(line)["cache"] for line in lines] == ["miss", "hit"]
        assert json.loads(lines[0])["target"] == "/a?b"
    else:
        assert '"GET /a?b HTTP/1.1" 200 1 "-" "x\\x22y\\xc3\\xa9"' in lines[0]
    path.rename(tmp_path / "old")
    front_end.reload()
    ask(front_end, "/a")
    eventually(lambda: path.exists() and len(path.read_text().splitlines()) == 1)


def test_metrics_and_state(world: World) -> None:
    front_end = world.start(counting())
    for _ in range(3):
        ask(front_end, "/a")
    text = ask(front_end, "/metrics", listener="admin").body.decode()
    assert 'rpcmq_proxy_requests_total{cache="hit",status="200"} 2\n' in text
    assert 'rpcmq_proxy_request_seconds_bucket{le="+Inf"} 3\n' in text
    state = json.loads(ask(front_end, "/status", listener="admin").body)
    assert state["fetchers"] == ["fetcher-0"] and state["store"]["entries"] == 1
    assert ask(front_end, "/healthz", listener="admin").body == b"ok\n"
    assert ask(front_end, "/x", listener="admin").status == 404
    assert ask(front_end, "/metrics", method="DELETE", listener="admin").status == 405


def test_pages_in_browsers_and_strangers_cannot_purge(world: World) -> None:
    world.configure(world.origin(counting()).url)
    front = world.settings.front.__class__(https="", http="127.0.0.1:0", admin="127.0.0.1:0", admin_token="secret")
    world.settings = world.settings.__class__(front=front, sites=world.settings.sites)
    front_end = world.front_end()
    for fields, status in [
        ([], 401), ([("Authorization", "Bearer wrong")], 401), ([("Authorization", "Bearer secret")], 200),
        ([("Authorization", "Bearer secret"), ("Origin", "https://evil.example")], 403),
    ]:  # fmt: skip
        assert ask(front_end, "/purge?all=1", fields, method="POST", listener="admin").status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8081", 200), ("127.0.0.1:8081", 200), ("[::1]:8081", 200), ("evil.example", 403),
        ("127.0.0.1.evil.example", 403), ("localhost.evil.example:8081", 403),
    ],
)  # fmt: skip
def test_without_a_token_no_name_of_others_leads_to_the_admin(world: World, host: str, status: int) -> None:
    front_end = world.start(counting())
    for method, target in (("POST", "/purge?all=1"), ("GET", "/metrics")):
        assert ask(front_end, target, method=method, listener="admin", host=host).status == status


def test_a_refused_websocket_is_not_waited_for_longer_than_any_response(world: World) -> None:
    front_end = world.start(saying(bytes(1 << 24), (), 403), limits={"min_rate": 1 << 20, "rate_seconds": 0.5})
    with connect_to(front_end) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(request_bytes("GET", "/ws", [("Connection", "Upgrade"), ("Upgrade", "websocket")]))
        eventually(lambda: front_end.status()["clients_too_slow"] == 1)
        eventually(lambda: front_end.status()["connections"] == 0)


def test_a_refused_websocket_whose_answer_breaks_off_looks_broken(world: World) -> None:
    with raw_origin(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\nhalf") as url:
        world.configure(url)
        front_end = world.front_end()
        with pytest.raises(BrokenOff):
            ask(front_end, "/ws", [("Connection", "Upgrade"), ("Upgrade", "websocket")])
