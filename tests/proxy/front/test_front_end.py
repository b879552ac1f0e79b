"""Clients, a front end, a router, a fetcher and origins: requests answered from the store, or by an origin."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.testing import eventually
from tests.proxy.world import (
    SECONDS,
    World,
    ask,
    at_once,
    bodies,
    connect_to,
    counting,
    raw_origin,
    read_reply,
    request_bytes,
    saying,
)

pytestmark = pytest.mark.integration


def test_the_first_request_is_a_miss_and_the_others_are_hits(world: World) -> None:
    front_end = world.start(counting())
    replies = [ask(front_end, "/a") for _ in range(4)]
    assert bodies(replies) == [b"1"] * 4
    assert [reply.is_hit for reply in replies] == [False, True, True, True]
    assert replies[0].cache.startswith("rpcmq; fwd=uri-miss") and int(replies[3].headers.get("age") or -1) >= 0


def test_many_hits_over_one_connection(world: World) -> None:
    front_end = world.start(saying(b"x" * 1000))
    ask(front_end, "/a")
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("GET", "/a") * 100)
        assert [read_reply(sock).body for _ in range(1)] == [b"x" * 1000]


def test_head_ranges_and_conditions_are_answered_from_the_store(world: World) -> None:
    front_end = world.start(saying(b"0123456789", (("Cache-Control", "max-age=60"), ("ETag", '"v1"'))))
    ask(front_end, "/a")
    head = ask(front_end, "/a", method="HEAD")
    assert (head.status, head.body, head.headers.get("content-length"), head.is_hit) == (200, b"", "10", True)
    part = ask(front_end, "/a", [("Range", "bytes=2-4")])
    assert (part.status, part.body, part.headers.get("content-range")) == (206, b"234", "bytes 2-4/10")
    same = ask(front_end, "/a", [("If-None-Match", '"v1"')])
    assert (same.status, same.body, same.is_hit) == (304, b"", True)
    assert len(world.origins[0].requests) == 1


def test_a_range_of_something_that_is_not_stored_brings_all_of_it_into_the_store(world: World) -> None:
    front_end = world.start(saying(b"x" * 100_000 + b"y" * 600_000))
    assert ask(front_end, "/a", [("Range", "bytes=99999-100001")]).body == b"xyy"
    eventually(lambda: ask(front_end, "/a").is_hit)
    assert len(world.origins[0].requests) == 1


def test_a_stored_response_is_confirmed_by_the_origin(world: World) -> None:
    def answer(exchange: Exchange) -> None:
        fields = Headers((("Cache-Control", "max-age=0"), ("ETag", '"v1"')))
        if exchange.request.header(b"if-none-match") == b'"v1"':
            exchange.send(ResponseHead(304, fields), b"")
        else:
            exchange.send(ResponseHead(200, fields), b"body")

    front_end = world.start(answer)
    replies = [ask(front_end, "/a") for _ in range(3)]
    assert [(reply.status, reply.body) for reply in replies] == [(200, b"body")] * 3
    assert world.origins[0].requests[2].header(b"if-none-match") == b'"v1"'


def test_responses_are_told_apart_by_the_fields_that_they_vary_by(world: World) -> None:
    def answer(exchange: Exchange) -> None:
        fields = Headers((("Cache-Control", "max-age=60"), ("Vary", "Accept-Language")))
        exchange.send(ResponseHead(200, fields), exchange.request.header(b"accept-language") or b"none")

    front_end = world.start(answer)
    for _ in range(2):
        for language in ("de", "fr"):
            assert ask(front_end, "/a", [("Accept-Language", language)]).body == language.encode()
    assert len(world.origins[0].requests) == 2


def test_requests_for_the_same_url_wait_for_one_response(world: World) -> None:
    go = Event()

    def answer(exchange: Exchange) -> None:
        go.wait(SECONDS)
        saying(b"shared")(exchange)

    front_end = world.start(answer)
    asking = [gevent.spawn(ask, front_end, "/a") for _ in range(20)]
    eventually(lambda: front_end.status()["requests_under_way"] == 20)
    go.set()
    gevent.joinall(asking, timeout=SECONDS)
    assert bodies([greenlet.get(block=False) for greenlet in asking]) == [b"shared"] * 20
    assert len(world.origins[0].requests) == 1 and front_end.status()["collapsed"] == 19


def test_requests_that_cannot_share_a_response_each_have_their_own(world: World) -> None:
    front_end = world.start(counting("private"))
    replies = at_once(*[lambda: ask(front_end, "/a")] * 10)
    assert sorted(int(reply.body) for reply in replies) == list(range(1, 11))


def test_requests_at_several_front_ends_meet_at_the_fetcher(world: World) -> None:
    go = Event()

    def answer(exchange: Exchange) -> None:
        go.wait(SECONDS)
        saying(b"shared")(exchange)

    world.configure(world.origin(answer).url)
    front_ends = [world.front_end() for _ in range(3)]
    for _ in range(2):
        world.fetcher()
    eventually(lambda: all(len(front_end.known.names()) == 2 for front_end in front_ends))
    asking = [gevent.spawn(ask, front_end, "/a") for front_end in front_ends]
    eventually(lambda: sum(fetcher.statistics()["requests"] for fetcher in world.fetchers) == 3)
    go.set()
    gevent.joinall(asking, timeout=SECONDS)
    assert bodies([greenlet.get(block=False) for greenlet in asking]) == [b"shared"] * 3
    assert len(world.origins[0].requests) == 1
    assert all(ask(front_end, "/a").is_hit for front_end in front_ends)


def test_a_leader_that_fails_fails_for_all(world: World) -> None:
    with raw_origin(lambda sock: gevent.sleep(0.2)) as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        replies = at_once(*[lambda: ask(front_end, "/a")] * 5)
        assert {reply.status for reply in replies} == {502}


def test_stale_responses_are_served_while_the_origin_is_asked(world: World) -> None:
    front_end = world.start(counting("max-age=0, stale-while-revalidate=60"))
    assert ask(front_end, "/a").body == b"1"
    stale = ask(front_end, "/a")
    assert stale.body == b"1" and stale.is_hit
    eventually(lambda: ask(front_end, "/a").body != b"1")


def test_stale_responses_are_served_while_origins_fail(world: World) -> None:
    front_end = world.start(counting("max-age=0, stale-if-error=60"), connect_seconds=0.5)
    assert ask(front_end, "/a").body == b"1"
    world.origins[0].stop()
    reply = ask(front_end, "/a")
    assert (reply.status, reply.body) == (200, b"1")
    assert ask(front_end, "/b").status == 502


def test_a_request_that_changes_something_makes_what_is_stored_invalid(world: World) -> None:
    front_end = world.start(counting())
    assert [ask(front_end, "/a").body for _ in range(2)] == [b"1", b"1"]
    assert ask(front_end, "/a", method="POST", body=b"x").body == b"2"
    assert ask(front_end, "/a").body == b"3"
