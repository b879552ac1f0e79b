"""Fetchers and front ends that come, go, fail and stall."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from rpcmq.proxy.http.exchange import Exchange
from rpcmq.testing import eventually
from tests.proxy.world import (
    SECONDS,
    World,
    ask,
    bodies,
    counting,
    raw_origin,
    saying,
)

pytestmark = pytest.mark.integration


def test_without_a_fetcher_there_is_a_clear_answer_and_hits_go_on(world: World) -> None:
    front_end = world.start(counting())
    ask(front_end, "/a")
    world.fetchers.pop().stop(5.0)
    reply = ask(front_end, "/b")
    assert reply.status == 502 and ask(front_end, "/a").is_hit
    world.fetcher()
    assert ask(front_end, "/b").status == 200


def test_a_front_end_that_stops_answers_what_runs(world: World) -> None:
    come, go = Event(), Event()

    def answer(exchange: Exchange) -> None:
        come.set()
        go.wait(SECONDS)
        saying(b"late")(exchange)

    front_end = world.start(answer)
    running = gevent.spawn(ask, front_end, "/a")
    assert come.wait(SECONDS)
    world.front_ends.remove(front_end)
    stopping = gevent.spawn(front_end.stop)
    gevent.sleep(0)
    go.set()
    assert running.get(timeout=SECONDS).body == b"late"
    assert stopping.get(timeout=SECONDS) == 0


def test_a_second_fetcher_answers_for_an_origin_that_stalls(world: World) -> None:
    go = Event()

    def stalling(exchange: Exchange) -> None:
        go.wait(SECONDS)
        saying(b"late")(exchange)

    stalled, quick = world.origin(stalling), world.origin(saying(b"quick"))
    hedging = {"hedge_after": 0.1}
    world.configure(stalled.url, fetch=hedging)
    world.fetcher()
    world.configure(quick.url, fetch=hedging)
    world.fetcher()
    front_end = world.front_end()
    eventually(lambda: len(front_end.known.names()) == 2)
    assert bodies([ask(front_end, f"/{number}") for number in range(6)]) == [b"quick"] * 6
    assert stalled.requests and len(quick.requests) == 6
    go.set()


def test_a_failure_counts_only_if_all_fetchers_have_failed(world: World) -> None:
    with raw_origin(b"garbage") as broken:
        quick = world.origin(saying(b"good"))
        for url in (broken, quick.url):
            world.configure(url, fetch={"first_of": 2})
            world.fetcher()
        front_end = world.front_end()
        eventually(lambda: len(front_end.known.names()) == 2)
        assert bodies([ask(front_end, f"/{number}") for number in range(4)]) == [b"good"] * 4
        quick.stop()
        assert ask(front_end, "/x").status in (502, 504)
        quick.start()
