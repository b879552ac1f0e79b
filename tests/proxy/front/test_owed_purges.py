"""Purges that a store has yet to take: front ends tell them to one another, and to those that start."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from time import time
from typing import Any

import pytest
from gevent.event import Event
from gevent.queue import Queue

from rpcmq.proxy.caching import Purge, PurgeKind
from rpcmq.proxy.front import purges
from rpcmq.proxy.front.front_end import FrontEnd
from rpcmq.proxy.front.hot import HotResponses
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.requests import Request
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.proxy.store import FileStore, MemoryStore, Purged, TieredStore
from rpcmq.testing import eventually
from tests.proxy.world import SECONDS, World, ask, counting

pytestmark = pytest.mark.integration

KEY = "http://a.example/a"


class FarStore(MemoryStore):
    """A store whose server takes purges only where ``is_reached``."""

    def __init__(self) -> None:
        super().__init__(1 << 26)
        self.is_reached = False
        self.taken: list[Purge] = []
        self._owed: dict[Purge, None] = {}

    def purge(self, purge: Purge, *, confirm: bool = False) -> Purged:
        purged = super().purge(purge)
        self._owed[purge] = None
        self.settle()
        return purged if self.is_reached else Purged(None, is_recorded=False)

    def owed(self) -> Sequence[Purge]:
        return tuple(self._owed)

    def settle(self) -> None:
        if self.is_reached:
            self.taken += self._owed
            self._owed.clear()


def ordered(front_end: FrontEnd, query: str) -> tuple[int, Any]:
    reply = ask(front_end, f"/purge?{query}", method="POST", listener="admin")
    return reply.status, json.loads(reply.body)


def answer_with_a_tag(exchange: Exchange) -> None:
    exchange.send(ResponseHead(200, Headers((("Cache-Control", "max-age=60"), ("Cache-Tag", "news")))), b"x")


@pytest.mark.parametrize(
    "query",
    ["url=http://a.example/a", "prefix=http://a.example/", "tag=news", "all=1", "url=http://a.example/a&soft=1"],
)
def test_a_purge_that_its_store_has_not_taken_outlasts_the_front_ends_that_heard_of_it(
    world: World, query: str
) -> None:
    world.configure(world.origin(answer_with_a_tag).url)
    world.fetcher()
    stores = [FarStore() for _ in range(3)]
    first, second = world.front_end(stores[0]), world.front_end(stores[1])
    status, told = ordered(first, query)
    assert status == 202 and told["recorded"] is False and told["purged"] is None
    eventually(lambda: stores[1].owed() == stores[0].owed() != ())
    (purge,) = stores[0].owed()
    third = world.front_end(stores[2])
    eventually(lambda: list(stores[2].owed()) == [purge])
    assert third.status()["purges_owed"] == 1
    for each in (first, second):
        each.stop()
        world.front_ends.remove(each)
    # Those that heard of it are gone. The third was only told.
    stores[2].is_reached = True
    eventually(lambda: stores[2].taken == [purge])
    assert third.status()["purges_owed"] == 0
    assert ordered(third, query)[0] == 200


def test_a_store_that_fails_in_a_way_of_its_own_is_counted_and_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "_TELL_SECONDS", 0.2)
    world.configure(world.origin(answer_with_a_tag).url)
    store = FarStore()
    front_end = world.front_end(store)
    ordered(front_end, "all=1")

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr(store, "settle", fail)
        patched.setattr(store, "news", fail)
        eventually(lambda: front_end._purges.owed.faults >= 2 and front_end.status()["purge_faults"] >= 4)
    store.is_reached = True
    eventually(lambda: len(store.taken) == 1)
    assert front_end.status()["purges_owed"] == 0


def test_it_is_obeyed_where_it_was_only_told(world: World) -> None:
    world.configure(world.origin(answer_with_a_tag).url)
    world.fetcher()
    one, other = world.front_end(FarStore()), world.front_end(MemoryStore(1 << 26))
    ask(other, "/a")
    assert ask(other, "/a").is_hit
    # As one that has missed the event.
    other._purges._subscriptions[0].close()
    assert ordered(one, "url=http://a.example/a")[0] == 202
    other._purges._subscriptions[0] = other._purges._client.subscribe("proxy.purge.*", other._purges._take)
    eventually(lambda: [each.kind for each in other._purges._recent if not each.soft] == [PurgeKind.URL])
    assert not ask(other, "/a").is_hit


def test_what_the_store_has_recorded_is_obeyed_without_any_event(world: World, tmp_path: Path) -> None:
    """As where a router was killed, and then the front end that had sent it."""
    world.configure(world.origin(answer_with_a_tag).url)
    world.fetcher()
    one, other = (
        world.front_end(TieredStore(MemoryStore(1 << 20), FileStore(tmp_path / "cache", 1 << 26))) for _ in range(2)
    )
    ask(other, "/a")
    for subscription in other._purges._subscriptions:
        subscription.close()
    assert ask(other, "/a").is_hit
    assert ordered(one, "tag=news")[0] == 200
    eventually(lambda: not ask(other, "/a").is_hit)
    assert other.status()["purges"] == 1 and ask(other, "/a").is_hit


def test_purges_of_others_that_cannot_be_read_are_read_later(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "_TELL_SECONDS", 0.2)
    store = FarStore()
    failures = [ZeroDivisionError("one"), ZeroDivisionError("two")]
    purge = Purge(PurgeKind.ALL, "", 1.0)

    def news(known: Container[Purge]) -> Sequence[Purge]:
        if failures:
            raise failures.pop()
        return [purge]

    store.news = news  # type: ignore[method-assign]
    world.configure(world.origin(counting()).url)
    front_end = world.front_end(store)
    eventually(lambda: front_end.status()["purges"] >= 1)
    assert "ZeroDivisionError" in caplog.text


def test_many_are_told_in_pieces(world: World) -> None:
    world.configure(world.origin(counting()).url)
    one, other = FarStore(), FarStore()
    world.front_end(one)
    for number in range(2000):
        one.purge(Purge(PurgeKind.TAG, f"{number}" + "x" * 100, 1.0 + number))
    assert len(list(world.front_ends[0]._purges.owed.all())) > 2
    world.front_end(other)
    eventually(lambda: other.owed() == one.owed())
    owed = world.front_ends[0]._purges.owed
    told: set[str] = set()
    for _ in range(20):
        told |= {each["value"] for each in owed.next()}
    assert len(told) == 2000, "piece by piece all of them are told anew"


def test_one_longer_than_a_piece_is_told_too(world: World) -> None:
    world.configure(world.origin(counting()).url)
    one, other = FarStore(), FarStore()
    world.front_end(one)
    one.purge(Purge(PurgeKind.PREFIX, "http://a.example/" + "x" * 100_000, 1.0))
    one.purge(Purge(PurgeKind.TAG, "t", 1.0))
    world.front_end(other)
    eventually(lambda: other.owed() == one.owed())


def test_one_that_is_told_again_and_again_is_applied_once(world: World) -> None:
    front_end = world.start(counting())
    purge = Purge(PurgeKind.TAG, "t", 1.0)
    told = {"from": "x", "number": 0, "owed": [purge.to_dict()]}
    for _ in range(3):
        front_end._purges._take(None, "", told)
    front_end._purges._take(None, "", {"from": "x", "number": 1, "purge": purge.to_dict()})
    assert front_end.status()["purges"] == 1


def test_what_one_front_end_has_missed_concerns_no_other(world: World) -> None:
    world.configure(world.origin(counting()).url)
    store = FarStore()
    front_end = world.front_end(store)
    front_end._purges._take(None, "", {"from": "x", "number": 0})
    front_end._purges._take(None, "", {"from": "x", "number": 1})
    assert front_end.status()["purges_missed"] == 1 and len(store.owed()) == 1
    assert list(front_end._purges.owed.all()) == [[]] and front_end._purges.owed.next() == []
    ordered(front_end, "tag=t")
    assert [each["value"] for each in front_end._purges.owed.next()] == ["t"]


def stored_far(world: World) -> TieredStore:
    """A shared store in which a front end has stored /a, and that is no part of the memory of another one."""
    far = FarStore()
    front_end = world.front_end(TieredStore(MemoryStore(1 << 20), far, is_remote=True))
    eventually(lambda: reads_shared(front_end))
    ask(front_end, "/a")
    assert far.find(KEY)
    return TieredStore(MemoryStore(1 << 20), far, is_remote=True)


def reads_shared(front_end: FrontEnd) -> bool:
    store = front_end._store
    assert isinstance(store, TieredStore)
    return store.reads_shared


def test_front_ends_wait_for_one_another_only_as_long_as_need_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the only one waits, nor those that have all answers, nor those that start at once."""
    monkeypatch.setattr(purges, "_LEARN_SECONDS", 3600.0)
    world.configure(world.origin(counting()).url)
    world.fetcher()
    store = stored_far(world)
    made = [world.front_end(TieredStore(MemoryStore(1 << 20), store.shared, is_remote=True)) for _ in range(4)]
    eventually(lambda: all(reads_shared(each) for each in made))
    assert all(ask(each, "/a").is_hit for each in made)


def test_nothing_of_a_shared_store_is_served_before_others_have_said_what_it_is_owed(
    world: World, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure(world.origin(counting()).url)
    world.fetcher()
    store = stored_far(world)
    monkeypatch.setattr(purges, "_LEARN_SECONDS", 3600.0)
    slow, questions = connect(), Queue[str]()
    slow.subscribe("proxy.owed", lambda ctx, topic, payload: questions.put(payload))
    front_end = world.front_end(store)
    assert questions.get(timeout=SECONDS) and ask(front_end, "/b").body == b"2"
    assert ask(front_end, "/a").body == b"3", "as if the store had nothing"
    # It asks again: an event may have been lost.
    assert questions.get(timeout=SECONDS) and not reads_shared(front_end)
    purge = Purge(PurgeKind.URL, "http://a.example/b", time())
    slow.publish(None, "proxy.purge.count", {"from": "slow", "number": 7, "owed": [purge.to_dict()], "answers": True})
    eventually(lambda: reads_shared(front_end))
    assert not ask(front_end, "/b").is_hit and ask(front_end, "/a").is_hit
    assert front_end.status()["purges_missed"] == 0


def test_one_that_does_not_answer_is_waited_for_no_longer_than_that(
    world: World, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "_LEARN_SECONDS", 0.5)
    asked = Event()
    connect().subscribe("proxy.owed", lambda *event: asked.set())
    world.configure(world.origin(counting()).url)
    front_end = world.front_end(TieredStore(MemoryStore(1 << 20), FarStore(), is_remote=True))
    eventually(lambda: reads_shared(front_end))
    assert asked.is_set()


def test_a_store_that_fails_in_an_unforeseen_way_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    store = FarStore()
    failures = [ZeroDivisionError("one"), ZeroDivisionError("two")]
    settle = store.settle

    def settled() -> None:
        if failures and store.is_reached:
            raise failures.pop()
        settle()

    store.settle = settled  # type: ignore[method-assign]
    world.configure(world.origin(counting()).url)
    front_end = world.front_end(store)
    assert ordered(front_end, "tag=t")[0] == 202
    with caplog.at_level(logging.INFO):
        store.is_reached = True
        eventually(lambda: [purge.value for purge in store.taken] == ["t"])
        eventually(lambda: "has taken the 1 purge(s)" in caplog.text)
    assert "ZeroDivisionError" in caplog.text


def test_a_response_that_was_looked_up_before_a_purge_is_not_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.25
    monkeypatch.setattr("rpcmq.proxy.front.hot.time", lambda: now)
    hot = HotResponses(1 << 20)
    request = Request()
    hot.purge()
    hot.add("http", request, KEY, 1000.2, (b"old", 200, 0))
    assert hot.find("http", request) is None
    now = 1000.5
    hot.add("http", request, KEY, 1000.4, (b"new", 200, 0))
    assert hot.find("http", request) == (b"new", 200, 0)
