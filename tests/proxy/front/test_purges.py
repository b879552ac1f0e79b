"""Purges, which reach all front ends, and undo what is on its way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rpcmq.proxy.front import purges
from rpcmq.proxy.front.front_end import FrontEnd
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.testing import eventually
from tests.proxy.world import (
    SECONDS,
    World,
    ask,
    counting,
    saying,
)

pytestmark = pytest.mark.integration


def purge(front_end: FrontEnd, query: str) -> Any:
    reply = ask(front_end, f"/purge?{query}", method="POST", listener="admin")
    return reply.status, json.loads(reply.body)


@pytest.mark.parametrize(
    ("query", "goes", "stays"),
    [
        ("url=http://a.example/a/1", "/a/1", "/a/2"),
        ("prefix=http://a.example/a/", "/a/2", "/b/1"),
        ("tag=news", "/a/1", "/b/1"),
        ("all=1", "/b/1", ""),
    ],
)
def test_purges_reach_all_front_ends(world: World, query: str, goes: str, stays: str) -> None:
    def answer(exchange: Exchange) -> None:
        fields = [("Cache-Control", "max-age=60")]
        if exchange.request.target.startswith(b"/a/"):
            fields.append(("Surrogate-Key", "news sports"))
        exchange.send(ResponseHead(200, Headers(fields)), b"%d" % len(world.origins[0].requests))

    world.configure(world.origin(answer).url)
    one, other = world.front_end(), world.front_end()
    world.fetcher()
    for front_end in (one, other):
        for target in ("/a/1", "/a/2", "/b/1"):
            ask(front_end, target)
            assert ask(front_end, target).is_hit
    status, answered = purge(one, query)
    assert status == 200 and answered["purged"] >= 1
    assert not ask(one, goes).is_hit
    eventually(lambda: other.status()["purges"] == 1)
    assert not ask(other, goes).is_hit
    assert not stays or (ask(one, stays).is_hit and ask(other, stays).is_hit)


@pytest.mark.parametrize("query", ["url=http://a.example/a", "prefix=http://a.example/", "tag=news", "all=1"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("has_directory", [False, True])
def test_each_purge_is_seen_in_each_store(
    world: World, tmp_path: Path, query: str, soft: bool, has_directory: bool
) -> None:
    def answer(exchange: Exchange) -> None:
        fields = [("Cache-Control", "max-age=60"), ("Surrogate-Key", "news")]
        exchange.send(ResponseHead(200, Headers(fields)), b"x")

    world.configure(world.origin(answer).url, cache={"directory": str(tmp_path / "cache")} if has_directory else None)
    front_end = world.front_end()
    world.fetcher()
    ask(front_end, "/a")
    assert ask(front_end, "/a").is_hit
    assert purge(front_end, query + "&soft=1" * soft)[0] == 200
    assert not ask(front_end, "/a").is_hit


def test_a_soft_purge_leaves_what_may_be_served_while_it_is_fetched_anew(world: World) -> None:
    front_end = world.start(counting("max-age=60, stale-while-revalidate=60"))
    ask(front_end, "/a")
    assert purge(front_end, "url=http://a.example/a&soft=1") == (
        200, {"purged": 1, "recorded": True, "kind": "url", "value": "http://a.example/a", "soft": True},
    )  # fmt: skip
    assert ask(front_end, "/a").body == b"1"
    eventually(lambda: ask(front_end, "/a").body == b"2")


def test_a_purge_that_did_not_come_has_all_revalidated(world: World) -> None:
    world.configure(world.origin(counting()).url)
    other = world.front_end()
    world.fetcher()
    assert ask(other, "/a").body == b"1"
    other._purges._meet()
    other._purges._take(None, "", {"from": "x", "number": 3})
    assert ask(other, "/a").is_hit
    other._purges._take(None, "", {"from": "x", "number": 4})
    assert ask(other, "/a").body == b"2"
    for noise in (
        None,
        {},
        "x",
        {"from": "x", "number": 5, "owed": 7},
        {"from": "x", "number": 5, "owed": [{"kind": "url"}]},
        {"from": "x", "number": "y"},
        {"from": "x", "number": math.inf},
        {"from": "x", "number": 5, "purge": {"kind": "?"}},
    ):
        other._purges._take(None, "", noise)
    assert other.status()["purges_missed"] == 1


def test_events_that_the_router_has_dropped_may_have_been_purges(world: World) -> None:
    world.configure(world.origin(counting()).url)
    front_end = world.front_end()
    world.fetcher()
    assert ask(front_end, "/a").body == b"1"
    front_end._purges._subscriptions[0].lost += 3
    # It finds out with the next event, of its own if there is no other front end.
    eventually(lambda: front_end.status()["purges_missed"] == 1)
    assert ask(front_end, "/a").body == b"2"


def test_the_first_purge_of_a_front_end_that_has_come_since_may_be_missed_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure(world.origin(counting()).url)
    monkeypatch.setattr(purges, "_MEETING_SECONDS", -1.0)
    front_end = world.front_end()
    take = front_end._purges._take
    for number, missed in ((0, 0), (1, 1), (1, 1)):
        take(None, "", {"from": "x", "number": number})
        assert front_end.status()["purges_missed"] == missed
    order = {"kind": "tag", "value": "t", "at": 1.0}
    take(None, "", {"from": "y", "number": 1, "purge": order})
    assert front_end.status()["purges_missed"] == 1
    take(None, "", {"from": "z", "number": 2, "purge": order})
    assert front_end.status()["purges_missed"] == 2


def test_front_ends_without_end_take_no_room_without_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purges, "_MAX_FRONT_ENDS", 3)
    world.configure(world.origin(counting()).url)
    front_end = world.front_end()
    known = front_end._purges._known
    front_end._purges._meet()
    for number in range(10):
        front_end._purges._take(None, "", {"from": f"{number}" * 1000, "number": 1})
        assert 0 < len(known) <= 3 and all(len(name) <= 16 for name in known)
    # Those that are known are counted as before.
    front_end._purges._take(None, "", {"from": "9" * 1000, "number": 2})
    assert front_end.status()["purges_missed"] == 1


@pytest.mark.parametrize(
    "query",
    [
        "",
        "url=/a",
        "url=x",
        "prefix=http://a.example",
        "tag=",
        "all=0",
        "url=http://a/&tag=x",
        "soft=2&all=1",
        "x=y",
        "url=http://a/&url=http://b/",
        "url=http://u:p@a/x",
        "prefix=http://a%00/",
        "url=http://a:999999/",
    ],
)
def test_a_purge_that_means_nothing_is_refused(world: World, query: str) -> None:
    status, answered = purge(world.start(counting()), query)
    assert status == 400 and answered["error"]


@pytest.mark.parametrize("query", ["url=http://a.example/a", "all=1"])
def test_a_purge_while_a_response_is_on_its_way_is_not_undone_by_it(world: World, query: str) -> None:
    come, go = Event(), Event()

    def answer(exchange: Exchange) -> None:
        come.set()
        go.wait(SECONDS)
        saying(b"%d" % len(world.origins[0].requests))(exchange)

    front_end = world.start(answer)
    first = gevent.spawn(ask, front_end, "/a")
    assert come.wait(SECONDS)
    assert purge(front_end, query)[0] == 200
    second = gevent.spawn(ask, front_end, "/a")
    eventually(lambda: len(world.origins[0].requests) == 2)
    go.set()
    assert first.get(timeout=SECONDS).status == 200
    assert second.get(timeout=SECONDS).cache.startswith("rpcmq; fwd=")
    assert ask(front_end, "/a").is_hit


@pytest.mark.parametrize(
    ("target", "query"),
    [
        # As it is, and as curl --data-urlencode sends it.
        ("/n%C3%BC", "url=http://a.example/n%C3%BC"),
        ("/n%C3%BC", "url=http%3A%2F%2Fa.example%2Fn%25C3%25BC"),
        ("/n%C3%BC", "url=http%3A//a.example/n%C3%BC"),
        ("/n%20x", "soft=0&url=http://a.example/n%20x"),
        ("/n%2Fx", "url=http://a.example/n%2fx"),
        ("/n+x", "url=HTTP://a.example/n+x"),
        ("/n?a=b%26c", "url=http://a.example/n?a=b%26c"),
        ("/n?a=b&c=d", "url=http%3A%2F%2Fa.example%2Fn%3Fa%3Db%26c%3Dd"),
        ("/%7Euser/1", "prefix=http://a.example/%7euser/"),
        ("/n%C3%BC/1", "prefix=http://a.example/n%c3"),
        ("/n%C3%BC/1", "prefix=http://a.example/n%C"),
        ("/n%C3%BC/1", "prefix=http%3A%2F%2Fa.example%2Fn%C3%BC"),
    ],
)
def test_the_escapes_of_a_url_are_its_own(world: World, target: str, query: str) -> None:
    front_end = world.start(counting())
    ask(front_end, target)
    assert ask(front_end, target).is_hit
    status, answered = purge(front_end, query)
    assert (status, answered["purged"]) == (200, 1) and not ask(front_end, target).is_hit
