"""Nobody gets a response that is staler than it may be, be it kept ready or on its way."""

from __future__ import annotations

from time import time

import gevent
import pytest
from gevent.event import Event

from rpcmq.proxy.front import fetching, handler, hot
from rpcmq.proxy.front.front_end import FrontEnd
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.testing import eventually
from tests.proxy.world import SECONDS, World, ask, connect_to, request_bytes, saying

pytestmark = pytest.mark.integration


def test_a_response_that_becomes_stale_within_the_second_is_not_kept_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = float(int(time()))
    clock = [now]
    for module in (fetching, handler, hot):
        monkeypatch.setattr(module, "time", lambda: clock[0])
    front_end = world.start(saying(b"x", [("Cache-Control", "max-age=1")]))
    hits = []
    for at in (0.5, 0.6, 0.7, 1.2, 1.3, 1.45, 1.6):
        clock[0] = now + at
        hits.append(ask(front_end, "/a").is_hit)
    assert hits == [False, True, True, True, True, True, False]


def test_a_request_is_not_answered_with_a_response_that_was_stale_before_it_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [float(int(time()))]
    for module in (fetching, handler, hot):
        monkeypatch.setattr(module, "time", lambda: clock[0])
    go = Event()

    def answer(exchange: Exchange) -> None:
        number = len(world.origins[0].requests)
        exchange.start(ResponseHead(200, Headers((("Cache-Control", "max-age=1"),))), 500_000)
        exchange.write(b"%d" % number * 300_000)
        assert number > 1 or go.wait(SECONDS)
        exchange.write(b"%d" % number * 200_000)
        exchange.finish()

    front_end = world.start(answer)
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("GET", "/a"))
        sock.recv(1)  # its head has come
        clock[0] += 0.5
        second = gevent.spawn(ask, front_end, "/a")
        eventually(lambda: followers(front_end) == 1)
        clock[0] += 1.5
        third = gevent.spawn(ask, front_end, "/a")
        eventually(lambda: followers(front_end) == 2)
        go.set()
        assert second.get(timeout=SECONDS).body == b"1" * 500_000
        assert third.get(timeout=SECONDS).body == b"2" * 500_000


def followers(front_end: FrontEnd) -> int:
    flight = front_end.handler.flights.join("http://a.example/a")
    return 0 if flight is None else flight.followers


def test_no_more_is_revalidated_at_once_than_there_is_room_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "_BACKGROUND", 2)
    go = Event()
    asked: set[bytes] = set()
    waiting = most = 0

    def answer(exchange: Exchange) -> None:
        nonlocal waiting, most
        target = exchange.request.target
        body = b"new" if target in asked else b"old"
        if target in asked:
            waiting += 1
            most = max(most, waiting)
            assert go.wait(SECONDS)
            waiting -= 1
        asked.add(target)
        control = "max-age=60" if body == b"new" else "max-age=0, stale-while-revalidate=600"
        exchange.send(ResponseHead(200, Headers((("Cache-Control", control),))), body)

    front_end = world.start(answer)
    targets = [f"/{number}" for number in range(6)]
    assert [ask(front_end, target).body for target in targets] == [b"old"] * 6
    # Whoever asks is answered at once, also beyond that.
    for _ in range(2):
        assert [ask(front_end, target).body for target in targets] == [b"old"] * 6
    eventually(lambda: waiting == 2)
    go.set()
    # And each has its turn.
    eventually(lambda: [ask(front_end, target).body for target in targets] == [b"new"] * 6)
    assert most == 2
