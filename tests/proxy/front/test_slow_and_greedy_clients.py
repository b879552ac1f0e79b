"""Clients that read slowly, or ask for more than their share: others are answered all the same."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.server import StreamServer

from rpcmq.proxy.fetcher import service
from rpcmq.proxy.fetcher.service import Fetcher
from rpcmq.proxy.front.front_end import FrontEnd, limits_of
from rpcmq.proxy.front.shares import AddressShares
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.proxy.settings import OriginUrl
from rpcmq.proxy.store.memory import MemoryStore
from rpcmq.testing import eventually
from tests.proxy.world import FRESH, SECONDS, World, ask, connect_to, request_bytes, saying

pytestmark = pytest.mark.integration


def test_shares_of_addresses() -> None:
    shares = AddressShares(2)
    assert [shares.take("a") for _ in range(3)] == [True, True, False] and shares.take("b")
    shares.give_back("a")
    assert shares.take("a") and shares.refused == 1
    shares.give_back("b")
    assert all(AddressShares(0).take("a") for _ in range(1000))


def stalling(go: Event, target: bytes) -> Any:
    """Answer at once, but for ``target``."""

    def answer(exchange: Exchange) -> None:
        if exchange.request.target.startswith(target):
            go.wait(SECONDS)
        exchange.send(ResponseHead(200, Headers(FRESH)), exchange.request.target)

    return answer


def test_no_client_has_all_fetchers_for_itself(world: World) -> None:
    go = Event()
    front_end = world.start(stalling(go, b"/stall"), limits={"fetches_for_address": 3})
    ask(front_end, "/hit")
    asked = [gevent.spawn(ask, front_end, f"/stall{number}") for number in range(3)]
    eventually(lambda: front_end.status()["fetched"] == 4)
    refused = ask(front_end, "/miss")
    assert refused.status == 503 and refused.headers.get("retry-after") == "1"
    assert ask(front_end, "/hit").is_hit and front_end.status()["fetches_refused"] == 1
    # Requests that wait for a response under way take no part of it.
    follower = gevent.spawn(ask, front_end, "/stall0")
    eventually(lambda: front_end.status()["requests_under_way"] == 4)
    go.set()
    assert [each.get(timeout=SECONDS).status for each in [*asked, follower]] == [200] * 4
    assert ask(front_end, "/miss").status == 200


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"max_requests": 2}, id="as many as are set"),
        pytest.param({"fetch": {"concurrency": 4}}, id="half of all"),
    ],
)
def test_no_site_has_all_of_a_fetcher_for_itself(world: World, settings: dict[str, Any]) -> None:
    go = Event()
    slow, quick = world.origin(stalling(go, b"/")), world.origin(saying(b"quick"))
    world.configure(slow.url, **settings)
    (site,) = world.settings.sites
    other = replace(site, names=("b.example",), origins=(quick.url,))
    world.settings = replace(world.settings, sites=(replace(site, names=("a.example",)), other))
    front_end = world.front_end()
    fetcher = world.fetcher()
    eventually(lambda: len(front_end.known.names()) == 1)
    asked = [gevent.spawn(ask, front_end, f"/{number}") for number in range(2)]
    eventually(lambda: len(slow.requests) == 2)
    assert ask(front_end, "/2").status == 503
    assert ask(front_end, "/2", host="b.example").body == b"quick"
    go.set()
    assert [each.get(timeout=SECONDS).status for each in asked] == [200, 200]
    assert ask(front_end, "/2").status == 200
    assert all(origin["in_flight"] == 0 for origin in fetcher.statistics()["sites"]["a.example"].values())


def test_nobody_waits_for_a_client_that_reads_slowly(world: World) -> None:
    body = bytes(range(256)) * (1 << 17)
    world.configure(
        world.origin(saying(body)).url, limits={"min_rate": 0}, cache={"collapse_seconds": 600.0, "max_body": 1 << 30}
    )
    front_end = world.front_end(MemoryStore(1 << 28, max_body=1 << 27))
    world.fetcher()
    eventually(lambda: len(front_end.known.names()) == 1)
    with connect_to(front_end) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(request_bytes("GET", "/a"))
        eventually(lambda: front_end.status()["fetched"] == 1)
        followers = [gevent.spawn(ask, front_end, "/a") for _ in range(3)]
        assert [each.get(timeout=3 * SECONDS).body == body for each in followers] == [True] * 3
        assert ask(front_end, "/a").is_hit


def test_slow_readers_have_a_bound_in_bytes(world: World) -> None:
    body = bytes(range(256)) * (1 << 15)
    front_end = world.start(
        saying(body, [("Cache-Control", "no-store")]), limits={"min_rate": 0, "unread_bytes": 1 << 20}
    )
    with ExitStack() as stack:
        for number in range(4):
            sock = stack.enter_context(connect_to(front_end))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(request_bytes("GET", f"/slow{number}"))
            eventually(lambda number=number: front_end.status()["fetched"] == number + 1)  # type: ignore[misc]
        # The slowest of them have to make room, but not for one that begins as soon as they do.
        eventually(lambda: ask(front_end, "/quick").body == body, 2 * SECONDS)
        assert front_end.status()["clients_cut_off"] >= 1 and front_end.status()["unread_bytes"] <= 1 << 20
    eventually(lambda: front_end.status()["unread_bytes"] == 0, SECONDS)


def test_where_nobody_can_make_room_a_long_response_is_refused(world: World) -> None:
    go = Event()
    front_end = world.start(in_parts(go), limits={"unread_bytes": 400 * 1024})
    waiting = gevent.spawn(ask, front_end, "/first")
    eventually(lambda: front_end.status()["unread_bytes"] == 256 * 1024)
    refused = ask(front_end, "/second")
    assert refused.status == 503 and refused.headers.get("retry-after") == "1"
    # Its origin is let go at once.
    eventually(lambda: in_flight(world.fetchers[0]) == 1, SECONDS / 2)
    go.set()
    assert len(waiting.get(timeout=SECONDS).body) == 600_000
    assert len(ask(front_end, "/second").body) == 600_000
    assert front_end.status()["clients_cut_off"] == 0


def test_the_rest_of_a_body_that_nobody_asks_for_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_REST_SECONDS", 0.1)
    world.configure(world.origin(saying(bytes(10_000_000))).url)
    fetcher = world.fetcher()
    answer = fetcher.fetch("a.example", "GET", b"GET / HTTP/1.1\r\nHost: a.example\r\n", b"", "")
    assert answer.token and in_flight(fetcher) == 1
    eventually(lambda: in_flight(fetcher) == 0, SECONDS)
    with pytest.raises(TimeoutError):
        next(fetcher.rest(answer.token, 1000))


def in_flight(fetcher: Fetcher) -> int:
    return sum(origin["in_flight"] for site in fetcher.statistics()["sites"].values() for origin in site.values())


def in_parts(go: Event) -> Any:
    """Answer with a long body, of which the end has to wait."""

    def answer(exchange: Exchange) -> None:
        exchange.start(ResponseHead(200, Headers((("Cache-Control", "no-store"),))), 600_000)
        exchange.write(bytes(300_000))
        go.wait(SECONDS)
        exchange.write(bytes(300_000))
        exchange.finish()

    return answer


def test_connections_need_files(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.configure(limits={"connections": 1 << 30})
    most = limits_of(world.settings).connections
    assert 0 < most < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert "ulimit -Hn" in caplog.text and str(most) in caplog.text
    world.configure(limits={"connections": 1})
    assert limits_of(world.settings).connections == 1


@contextmanager
def silent_websockets() -> Iterator[tuple[OriginUrl, list[Any]]]:
    """An origin that agrees to each WebSocket, and then neither says anything nor looks whether its client is there."""
    held: list[Any] = []
    end = Event()

    def serve(sock: Any, peer: Any) -> None:
        sock.recv(65536)
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        held.append(sock)
        end.wait(3 * SECONDS)

    server = StreamServer(("127.0.0.1", 0), serve)
    server.start()
    try:
        yield OriginUrl("http", "127.0.0.1", int(server.server_port or 0)), held
    finally:
        end.set()
        server.stop(1.0)


@pytest.mark.parametrize("how", ["reset", "end"])
def test_a_tunnel_ends_with_its_client(world: World, how: str) -> None:
    with silent_websockets() as (url, held):
        world.configure(url)
        front_end = world.front_end()
        fields = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
        with ExitStack() as stack:
            for _ in range(3):
                sock = stack.enter_context(connect_to(front_end))
                sock.sendall(request_bytes("GET", "/ws", fields))
                assert b" 101 " in sock.recv(1000)
                if how == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            eventually(lambda: len(held) == 3)
        eventually(lambda: open_connections(front_end) == 0, SECONDS)


def open_connections(front_end: FrontEnd) -> int:
    count: int = front_end.status()["connections"]
    return count
