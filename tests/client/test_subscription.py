from __future__ import annotations

import logging
from functools import partial
from typing import Any

import gevent
import gevent.lock
import pytest
from gevent.event import Event

import rpcmq
from rpcmq.client import Client
from rpcmq.core.process import recent_messages
from rpcmq.errors import LinkLost, Overloaded, UsageError
from rpcmq.testing import eventually
from rpcmq.wire import Address, Flag, Kind, pack
from rpcmq.wire.mesh_bodies import RoutersBody
from tests.client.endpoints import Compute, message
from tests.from_threads import each_shell

client_shell = each_shell


class Listener:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.go_on = Event()
        self.go_on.set()

    def __call__(self, ctx: Any, topic: str, payload: Any) -> None:
        self.go_on.wait()
        self.events.append((topic, payload))

    @property
    def payloads(self) -> list[Any]:
        return [payload for _, payload in self.events]


def test_an_event_reaches_all_who_subscribe_to_a_matching_pattern(connect):
    publisher, subscriber = connect(), connect()
    one, other, third = Listener(), Listener(), Listener()
    subscriber.subscribe("instance.*.end", one)
    subscriber.subscribe("instance.#", other)
    connect().subscribe("volume.#", third)
    assert publisher.publish(None, "instance.create.end", {"id": 1}, confirm=True) == 1
    assert publisher.publish(None, "instance", 2, confirm=True) == 1
    assert publisher.publish(None, "network.create", 3, confirm=True) == 0
    publisher.publish(None, "volume.x", 4)
    eventually(lambda: other.events == [("instance.create.end", {"id": 1}), ("instance", 2)])
    eventually(lambda: one.payloads == [{"id": 1}] and third.payloads == [4])


def test_events_keep_their_order_to_each_other_and_to_subscriptions(client):
    seen: list[int] = []
    for n in range(50):
        client.publish(None, "a.x", n)
    client.subscribe("a.#", lambda ctx, topic, payload: seen.append(payload))
    for n in range(50, 400):
        client.publish(None, "a.x", n, confirm=n % 100 == 99)
    eventually(lambda: len(seen) >= 350)
    assert seen == list(range(50, 400))


def test_events_are_handed_to_the_router_by_close(client, connect):
    listener = Listener()
    connect().subscribe("a.#", listener)
    client.publish(None, "a.x", 0, confirm=True)
    for n in range(1, 200):
        client.publish(None, "a.x", n)
    client.close()
    eventually(lambda: listener.payloads == list(range(200)))


def test_a_notification_is_an_event_with_all_about_it(client):
    listener: list[Any] = []
    client.subscribe("notifications.*.instance.#", lambda ctx, topic, payload: listener.append((ctx, topic, payload)))
    client.notify({"user": "u"}, "instance.create.end", {"id": 1})
    client.notify(None, "instance.delete", None, "error", publisher_id="api-1")
    eventually(lambda: len(listener) == 2)
    (ctx, topic, event), (_, second_topic, second) = listener
    assert ctx == {"user": "u"}
    assert (topic, second_topic) == ("notifications.info.instance.create.end", "notifications.error.instance.delete")
    assert {k: event[k] for k in ("event_type", "priority", "payload")} == {
        "event_type": "instance.create.end",
        "priority": "INFO",
        "payload": {"id": 1},
    }
    assert event["publisher_id"] == client.identity
    assert second["publisher_id"] == "api-1"
    assert event["message_id"] != second["message_id"]
    assert event["timestamp"] <= second["timestamp"]


def test_events_are_handled_in_order_and_one_by_one(client):
    listener = Listener()
    client.subscribe("a", listener, window=7)
    for n in range(500):
        client.publish(None, "a", n)
    eventually(lambda: len(listener.events) == 500)
    assert listener.payloads == list(range(500))


def test_a_closed_subscription_gets_nothing(client):
    listener, other = Listener(), Listener()
    subscription = client.subscribe("a.#", listener)
    client.subscribe("a.b", other)
    client.publish(None, "a.b", 1, confirm=True)
    eventually(lambda: listener.payloads == other.payloads == [1])
    subscription.close()
    subscription.close()
    assert client.publish(None, "a.b", 2, confirm=True) == 1
    assert client.publish(None, "a.c", 3, confirm=True) == 0
    eventually(lambda: other.payloads == [1, 2])
    assert listener.payloads == [1]


def test_two_subscriptions_to_one_pattern(client):
    first, second = Listener(), Listener()
    subscription = client.subscribe("a", first)
    client.subscribe("a", second)
    client.publish(None, "a", 1)
    eventually(lambda: first.payloads == second.payloads == [1])
    subscription.close()
    client.publish(None, "a", 2)
    eventually(lambda: second.payloads == [1, 2])
    assert first.payloads == [1]


def test_a_handler_that_fails_gets_the_next_event(client, caplog):
    seen: list[Any] = []

    def handler(ctx: Any, topic: str, payload: Any) -> None:
        seen.append(payload)
        if payload == 0:
            raise ValueError("bad")
        if payload == 1:
            with gevent.Timeout(0.001):
                gevent.sleep(5)

    client.subscribe("a", handler)
    for n in range(3):
        client.publish(None, "a", n)
    eventually(lambda: seen == [0, 1, 2])
    assert caplog.text.count("handler of a failed") == 2


def test_an_event_that_may_not_be_loaded_is_passed_over(client, caplog):
    listener = Listener()
    client.subscribe("a", listener)
    client.publish(None, "a", Listener)
    client.publish(None, "a", 2)
    eventually(lambda: listener.payloads == [2])
    assert "event for a not handled" in caplog.text


def test_a_slow_subscriber_loses_its_own_events_and_is_told(caplog):
    caplog.set_level(logging.WARNING)
    with (
        rpcmq.testing.router(pubsub_max_messages=10) as router,
        Client(router.url) as publisher,
        Client(router.url) as slow_client,
        Client(router.url) as quick_client,
    ):
        slow, quick = Listener(), Listener()
        slow.go_on.clear()
        subscription = slow_client.subscribe("a", slow, window=5)
        quick_client.subscribe("a", quick)
        for n in range(100):
            publisher.publish(None, "a", n)
        eventually(lambda: quick.payloads == list(range(100)))
        slow.go_on.set()
        eventually(lambda: len(slow.events) == 15)
        assert slow.payloads == [0, 1, 2, 3, 4, *range(90, 100)]
        assert subscription.lost == 85
        assert "85 events lost" in caplog.text


def test_losses_without_end_are_some_lines_in_the_log(caplog):
    caplog.set_level(logging.WARNING)
    turns = gevent.lock.Semaphore(0)

    def handler(ctx: Any, topic: str, payload: Any) -> None:
        turns.acquire()

    with rpcmq.testing.router(pubsub_max_messages=1) as router, Client(router.url) as client:
        subscription = client.subscribe("a", handler, window=1)
        for n in range(1, 13):
            for _ in range(4):
                client.publish(None, "a", n, confirm=True)
            turns.release()
            eventually(partial(lambda least: subscription.lost >= least, 2 * n))
        for _ in range(50):
            turns.release()
    assert 1 <= caplog.text.count("events lost") <= 5


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("", print), "pattern"),
        (("a..b", print), "pattern"),
        ((5, print), "pattern must be a str"),
        (("a", None), "handler must be callable"),
    ],
)
def test_wrong_subscriptions_are_named(client, arguments, names):
    with pytest.raises(UsageError, match=names):
        client.subscribe(*arguments)
    for window in (0, -1, 65536, "5", True):
        with pytest.raises(UsageError, match="window must be"):
            client.subscribe("a", print, window=window)


@pytest.mark.refuses_async
def test_an_async_handler_is_refused_instead_of_never_being_awaited(client):
    async def handler(ctx: Any, topic: str, payload: Any) -> None:
        raise AssertionError("never called")

    class Handler:
        async def __call__(self, ctx: Any, topic: str, payload: Any) -> None:
            raise AssertionError("never called")

    for each in (handler, Handler(), Handler().__call__, partial(handler)):
        with pytest.raises(UsageError, match="cannot be run: it is async"):
            client.subscribe("a", each)


@pytest.mark.parametrize(("topic", "names"), [("", "topic"), ("a..b", "topic"), (None, "topic must be a str")])
def test_wrong_topics_are_named(client, topic, names):
    with pytest.raises(UsageError, match=names):
        client.publish(None, topic, 1)


def test_a_handler_may_publish_call_and_subscribe(client, serve):
    compute = Compute()
    serve(compute)
    last = Listener()

    def handler(ctx: Any, topic: str, payload: Any) -> None:
        total = client.call(None, "compute", message("add", a=payload, b=1))
        client.subscribe("second", last)
        client.publish(None, "second", total)

    client.subscribe("first", handler)
    client.publish(None, "first", 1)
    eventually(lambda: last.payloads == [2])


def test_events_sent_just_before_the_close_arrive(connect):
    listener = Listener()
    connect().subscribe("a", listener)
    publisher = connect()
    for n in range(100):
        publisher.publish(None, "a", n)
    publisher.close()
    eventually(lambda: listener.payloads == list(range(100)))


def test_closing_ends_what_waits_for_the_router(connect):
    client = connect()
    client.subscribe("a", print)
    client._links.event_link._uplink.outbox = Unsent()
    waiting = gevent.spawn(client.publish, None, "a", 1, confirm=True)
    eventually(lambda: client._links.event_link._calls.open)
    client.close()
    with pytest.raises(LinkLost, match="closed"):
        waiting.get(timeout=20)


class Unsent(list[bytes]):
    """An outbox that loses what is put into it."""

    def append(self, message: bytes) -> None:
        pass


def test_a_publisher_waits_for_a_router_that_does_not_take_its_events(connect):
    listener = Listener()
    connect().subscribe("a", listener)
    client = connect(cast_window=10)
    for n in range(200):
        client.publish(None, "a", n)
        assert client._links.event_link._casts.open <= 10
    eventually(lambda: listener.payloads == list(range(200)))


def test_events_for_a_router_that_is_away_are_bounded():
    with rpcmq.testing.router() as router:
        client = Client(router.url, cast_window=3, timeout=0.05)
        client.connect(20)
        client.subscribe("b", print)
    for n in range(3):
        client.publish(None, "a", n)
    with pytest.raises(Overloaded, match="event 'a' not sent: 3 events wait"):
        client.publish(None, "a", 3)
    client.close(0.05)


def test_one_link_for_all_subscriptions_of_a_process(router, client):
    for n in range(50):
        client.subscribe(f"a.{n}", print)
    (process,) = [p for p in router.query("processes")["processes"] if p["queue_type"] == "pubsub"]
    assert len(process["patterns"]) == 50
    assert process["identity"] == client.identity


@pytest.mark.parametrize(
    "error",
    [SystemExit(2), KeyboardInterrupt(), gevent.GreenletExit(), gevent.Timeout(7)],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_handler_of_events_raises_costs_that_event_only(client, error):
    seen: list[Any] = []

    def handle(ctx: Any, topic: str, payload: Any) -> None:
        seen.append(payload)
        if payload == 1:
            raise error

    client.subscribe("a", handle)
    for n in range(3):
        client.publish(None, "a", n)
    eventually(lambda: seen == [0, 1, 2])


def test_whatever_is_raised_by_who_is_told_of_refused_events_is_counted(caplog):
    told: list[int] = []

    def on_refused(payload: str) -> None:
        told.append(len(payload))
        raise ValueError("as a program may")

    with rpcmq.testing.router(message_max_bytes=65_536) as router, Client(router.url) as client:
        link = client.event_link()
        link.on_refused = on_refused
        for _ in range(3):
            client.publish(None, "a", "x" * 70_000)
        eventually(lambda: told == [70_000] * 3)
        assert client.publish(None, "a", "small", confirm=True) == 0
        assert link._uplink.discarded["internal error"] == 3
    assert "an event that was refused could not be told of" in caplog.text


@pytest.mark.own_hub
def test_an_event_that_is_sent_again_is_handled_once(client):
    """After a restart of the router its publisher cannot know whether the life before had passed it on."""
    listener = Listener()
    client.subscribe("a", listener)
    link = client._links.event_link

    def event(number: int, flags: int = 0) -> bytes:
        form, payload = client._codec.encode({"context": None, "payload": number}, 0xFF)
        key, address = number.to_bytes(20), Address("a").encode()
        return pack(Kind.PUBLISH, payload, flags=flags, format=form, key=key, address=address)

    for published in (event(1), event(2), event(1, Flag.RESENT), event(3, Flag.RESENT), event(3, Flag.RESENT)):
        link._event(0.0, published)
    # Outside of a mesh, two routers may give the same keys to different publishers.
    link._event(0.0, event(2))
    eventually(lambda: listener.payloads == [1, 2, 3, 2])
    # In a mesh, copies of an event take different ways, and the one that was sent again may be the first to arrive.
    link._uplink.moves.mesh = RoutersBody(mesh="m")
    for published in (event(2), event(4, Flag.RESENT), event(4), event(5)):
        link._event(0.0, published)
    eventually(lambda: listener.payloads == [1, 2, 3, 2, 4, 5])
    gevent.sleep(0.02)
    assert listener.payloads == [1, 2, 3, 2, 4, 5]


@pytest.mark.own_hub
def test_the_events_that_are_remembered_are_bounded(client, monkeypatch):
    monkeypatch.setattr(recent_messages, "_MAX_MESSAGES", 3)
    client.subscribe("a", Listener())
    link = client._links.event_link
    for number in range(10):
        link._event(0.0, pack(Kind.PUBLISH, key=number.to_bytes(20), address=Address("a").encode()))
    assert list(link._recent._had) == [number.to_bytes(20) for number in (7, 8, 9)]


@pytest.mark.own_hub
def test_losses_between_routers_are_not_blamed_on_the_subscriber(client, caplog):
    subscription = client.subscribe("a", Listener())
    link = client._links.event_link
    link._lost(0.0, pack(Kind.LOST, (3).to_bytes(4), method=b"node-7"))
    assert subscription.lost == 3
    assert "3 events lost, 3 in all: the router 'node-7' could not pass them on as fast as they came" in caplog.text
    assert "this process" not in caplog.text
