"""Bodies of responses and of requests: whole, or visibly broken."""

from __future__ import annotations

from typing import Any, cast

import gevent
import pytest
from gevent.event import Event

from rpcmq import Client
from rpcmq.errors import LinkLost
from rpcmq.proxy.front.fetchers import KnownFetchers
from rpcmq.proxy.front.fetching import Fetching, NoResponse
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.proxy.settings import FetchSettings
from rpcmq.proxy.store.memory import MemoryStore
from rpcmq.testing import eventually
from tests.proxy.world import (
    OK,
    SECONDS,
    BrokenOff,
    World,
    ask,
    connect_to,
    raw_origin,
    read_reply,
    request_bytes,
    saying,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 5_000_000])
def test_bodies_of_all_sizes_come_whole_and_are_stored(world: World, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    world.configure(world.origin(saying(body)).url, cache={"memory_body": 1 << 24})
    front_end = world.front_end(MemoryStore(1 << 26, max_body=1 << 24))
    world.fetcher()
    assert ask(front_end, "/a").body == body
    again = ask(front_end, "/a")
    assert again.body == body and again.is_hit


def test_a_body_without_a_length_is_passed_on_as_it_comes(world: World) -> None:
    go = Event()

    def slowly(exchange: Exchange) -> None:
        exchange.start(ResponseHead(200, Headers((("Cache-Control", "max-age=60"),))), None)
        exchange.write(b"first")
        go.wait(SECONDS)
        exchange.write(b"second")
        exchange.finish()

    front_end = world.start(slowly)
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("GET", "/a"))
        seen = b""
        while b"first" not in seen:
            seen += sock.recv(1000)
        go.set()
        while b"\r\n0\r\n\r\n" not in seen:
            seen += sock.recv(1000)
        assert b"second" in seen
    assert ask(front_end, "/a").body == b"firstsecond" and ask(front_end, "/a").is_hit


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Cache-Control: max-age=60\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 500_000,
        OK + b"Cache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n7a120\r\n" + b"x" * 500_000 + b"\r\n",
    ],
)
def test_a_body_that_breaks_off_looks_broken_and_is_not_stored(world: World, answer: bytes) -> None:
    with raw_origin(answer, answer, OK + b"Cache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok") as url:
        world.configure(url, cache={"memory_body": 1 << 24})
        front_end = world.front_end(MemoryStore(1 << 26, max_body=1 << 24))
        world.fetcher()
        for _ in range(2):
            with pytest.raises(BrokenOff):
                ask(front_end, "/a")
        assert front_end.status()["store"]["entries"] == 0
        assert ask(front_end, "/a").body == b"ok"


@pytest.mark.parametrize("answer", [OK + b"Content-Length: 9\r\n\r\nx", b"", b"garbage\r\n\r\n"])
def test_a_short_response_that_breaks_off_is_a_bad_gateway(world: World, answer: bytes) -> None:
    with raw_origin(answer) as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        assert ask(front_end, "/a").status == 502


def test_a_body_that_only_the_end_of_the_connection_ends_is_never_stored(world: World) -> None:
    with raw_origin(OK + b"Cache-Control: max-age=60\r\n\r\nperhaps all") as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        assert [ask(front_end, "/a").body for _ in range(2)] == [b"perhaps all"] * 2
        assert front_end.status()["store"]["entries"] == 0


def test_a_client_that_leaves_lets_those_behind_it_have_the_response(world: World) -> None:
    come, go = Event(), Event()

    def answer(exchange: Exchange) -> None:
        come.set()
        go.wait(SECONDS)
        saying(b"x" * 3_000_000)(exchange)

    world.configure(world.origin(answer).url, cache={"memory_body": 1 << 24})
    front_end = world.front_end(MemoryStore(1 << 26, max_body=1 << 24))
    world.fetcher()
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("GET", "/a"))
        assert come.wait(SECONDS)
        follower = gevent.spawn(ask, front_end, "/a")
        eventually(lambda: front_end.status()["requests_under_way"] == 2)
    go.set()
    assert len(follower.get(timeout=SECONDS).body) == 3_000_000


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 6_000_000])
def test_the_body_of_a_request_reaches_the_origin(world: World, size: int) -> None:
    front_end = world.start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    for _ in range(2):
        assert ask(front_end, "/a", method="POST", body=body).body == body


def test_an_upload_waits_for_a_fetcher_and_reaches_it_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    front_end = world.start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    world.fetchers.pop().stop(5.0)
    wait = KnownFetchers.wait

    def start_one(known: KnownFetchers, seconds: float) -> bool:
        world.fetcher()
        return wait(known, SECONDS)

    monkeypatch.setattr(KnownFetchers, "wait", start_one)
    body = b"0123456789" * 100_000
    reply = ask(front_end, "/a", method="POST", body=body)
    assert reply.status == 200 and reply.body == body


def test_an_upload_of_which_something_was_read_goes_to_no_other_fetcher() -> None:
    read: list[bytes] = []

    class Losing:
        """A client whose calls are lost once the first item of their stream was taken."""

        def call(self, context: object, topic: object, message: Any, *args: object, **options: object) -> None:
            items = message["args"]["body"].items()
            read.append(next(items, b"nothing"))
            items.close()
            raise LinkLost("the fetcher is lost")

    fetching = Fetching(cast(Client, Losing()), FetchSettings(), KnownFetchers())
    with pytest.raises(NoResponse, match="the fetcher was lost"):
        fetching.ask("a.example", "GET", "/a", (), iter([b"first", b"second"]))
    assert read == [b"first"]


def test_an_upload_is_read_only_as_fast_as_the_origin_takes_it(world: World) -> None:
    go = Event()

    def answer(exchange: Exchange) -> None:
        go.wait(SECONDS)
        exchange.send(ResponseHead(200), b"%d" % sum(map(len, exchange.body())))

    size = 64 << 20
    front_end = world.start(answer)
    sent = 0
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("POST", "/a", [("Content-Length", str(size))]))
        sock.settimeout(1.0)
        try:
            while sent < size:
                sent += sock.send(b"x" * min(1 << 18, size - sent))
        except TimeoutError:
            pass  # nobody takes more
        assert sent < 40 << 20
        go.set()
        sock.settimeout(SECONDS)
        sock.sendall(b"x" * (size - sent))
        assert read_reply(sock).body == b"%d" % size


def test_an_origin_that_answers_before_the_end_of_an_upload_is_heard(world: World) -> None:
    front_end = world.start(lambda exchange: exchange.send_error(413, "Too much.", closes=True))
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("POST", "/a", [("Content-Length", str(100 << 20))]))
        try:
            for _ in range(400):
                sock.sendall(b"x" * (1 << 18))
        except OSError:
            pass  # closed, as it should be
        assert read_reply(sock).status in (413, 502)


def test_a_client_that_leaves_in_its_upload_leaves_nothing_behind(world: World) -> None:
    seen: list[object] = []

    def answer(exchange: Exchange) -> None:
        try:
            seen.append(sum(map(len, exchange.body())))
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    front_end = world.start(answer)
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("POST", "/a", [("Content-Length", str(100 << 20))]) + b"x" * (1 << 20))
        eventually(lambda: len(world.origins[0].requests) == 1)
    eventually(lambda: seen == ["ClientGone"])
    eventually(lambda: front_end.status()["connections"] == 0)
