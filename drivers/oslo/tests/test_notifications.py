"""Notifications: kept before the first listener, pools, batches, requeue, acknowledgement after dispatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging import NotificationResult
from processes import Router, eventually, program

from rpcmq import threads
from rpcmq_oslo.put_back import PutBack

Make = Callable[..., Any]


class Endpoint:
    """Listens to notifications of the priority "info"."""

    def __init__(self, results: list[Any] | None = None) -> None:
        self.seen: list[int] = []
        self.results = results or []

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> Any:
        self.seen.append(payload["n"])
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        return result


class Batches:
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.seen: list[int] = []

    def info(self, messages: list[Any]) -> None:
        self.sizes.append(len(messages))
        self.seen += [message["payload"]["n"] for message in messages]


@pytest.fixture
def notifier(conf: Any, router: Any) -> Iterator[Make]:
    """Makes functions that notify of numbers, on a topic."""
    made = []

    def notifier(topic: str) -> Callable[..., None]:
        made.append(oslo_messaging.get_notification_transport(conf, router.url))
        one = oslo_messaging.Notifier(made[-1], "test.host", driver="messagingv2", topics=[topic])
        return lambda n, verb="info": getattr(one, verb)({"user": "a"}, "instance.create", {"n": n})

    yield notifier
    for each in made:
        each.cleanup()


@pytest.fixture
def listen(conf: Any, router: Any) -> Iterator[Make]:
    """Starts listeners; all are stopped when the test is over."""
    made = []
    transports = []

    def listen(topic: str, endpoint: Any, **options: Any) -> Any:
        transports.append(oslo_messaging.get_notification_transport(conf, router.url))
        make = oslo_messaging.get_notification_listener
        if "batch_size" in options:
            make = oslo_messaging.get_batch_notification_listener
        made.append(make(transports[-1], [oslo_messaging.Target(topic=topic)], [endpoint], **options))
        made[-1].start()
        return made[-1]

    yield listen
    for listener in made:
        listener.stop()
        listener.wait()
    for each in transports:
        each.cleanup()


def test_notifications_wait_for_the_first_listener(notifier: Make, listen: Make) -> None:
    notify = notifier("early")
    for n in range(10):
        notify(n)
    endpoint = Endpoint()
    listen("early", endpoint)
    eventually(lambda: sorted(endpoint.seen) == list(range(10)))


def test_they_are_kept_for_longer_than_casts_to_a_topic_that_nobody_has(conf: Any, listen: Make) -> None:
    with Router(mailbox_unclaimed_seconds="0.3") as router, threads.Client(f"tcp://{router.host}") as client:
        transport = oslo_messaging.get_notification_transport(conf, router.url)
        notify = oslo_messaging.Notifier(transport, "test.host", driver="messagingv2", topics=["kept"])
        notify.info({}, "instance.create", {"n": 1})
        oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="nobody")).cast({}, "tell")

        def topics() -> set[str]:
            return {row["topic"] for row in client.query("topics")["topics"] if row["queued"]}

        eventually(lambda: topics() == {"kept:info"})
        endpoint = Endpoint()
        listener = oslo_messaging.get_notification_listener(
            transport, [oslo_messaging.Target(topic="kept")], [endpoint]
        )
        listener.start()
        eventually(lambda: endpoint.seen == [1])
        listener.stop()
        listener.wait()
        transport.cleanup()


def test_each_pool_gets_each_and_the_others_share(notifier: Make, listen: Make) -> None:
    notify = notifier("shared")
    alone = [Endpoint(), Endpoint()]
    pools = {"billing": [Endpoint(), Endpoint()], "audit": [Endpoint()]}
    for endpoint in alone:
        listen("shared", endpoint)
    for pool, endpoints in pools.items():
        for endpoint in endpoints:
            listen("shared", endpoint, pool=pool)
    for n in range(12):
        notify(n)
    for group in (alone, *pools.values()):
        eventually(lambda group=group: sorted(n for e in group for n in e.seen) == list(range(12)))


@pytest.mark.parametrize("pool", ["x" * 256, "a\nb", "\ud800", 5], ids=ascii)
def test_a_pool_that_has_no_name_is_told(conf: Any, router: Any, pool: Any) -> None:
    transport = oslo_messaging.get_notification_transport(conf, router.url)
    with pytest.raises(oslo_messaging.MessagingException, match=r"listen to openstack/t:info for pool .*must be"):
        transport._listen_for_notifications([(oslo_messaging.Target(topic="t"), "info")], pool, None, None)
    transport.cleanup()


def test_only_the_priorities_that_an_endpoint_has_are_listened_to(notifier: Make, listen: Make) -> None:
    class Both(Endpoint):
        error = Endpoint.info

    notify, endpoint = notifier("priorities"), Both()
    listen("priorities", endpoint)
    notify(1)
    notify(2, "error")
    notify(3, "warn")
    notify(4)
    eventually(lambda: sorted(endpoint.seen) == [1, 2, 4])


def test_what_is_put_back_is_delivered_again(notifier: Make, listen: Make) -> None:
    notify = notifier("again")
    endpoint = Endpoint([NotificationResult.REQUEUE, ValueError("not yet"), NotificationResult.HANDLED])
    listen("again", endpoint, allow_requeue=True)
    notify(7)
    eventually(lambda: endpoint.seen == [7, 7, 7])
    notify(8)
    eventually(lambda: endpoint.seen == [7, 7, 7, 8])


def test_what_is_put_back_goes_to_another_listener_too(notifier: Make, listen: Make, router: Any) -> None:
    with program("listener", router.url, "unwanted", "pool") as other:
        other.expect("listening")
        notify = notifier("unwanted")
        for n in range(5):
            notify(n)
        other.expect("put back")
        endpoint = Endpoint()
        listen("unwanted", endpoint, pool="pool", allow_requeue=True)
        eventually(lambda: sorted(endpoint.seen) == list(range(5)))
        assert other.popen.poll() is None


def test_what_nobody_wants_comes_back_later_each_time() -> None:
    put_back = PutBack(lambda incoming: None)
    incoming: Any = SimpleNamespace(msg_id="1")
    pauses = [round(put_back._pause(incoming), 3) for _ in range(7)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert put_back._pause(SimpleNamespace(msg_id="2")) == 0.2


def test_what_was_put_back_goes_to_another_pool_member_if_this_one_ends(
    notifier: Make, listen: Make, router: Any
) -> None:
    with program("listener", router.url, "orphaned", "pool") as other:
        other.expect("listening")
        notifier("orphaned")(1)
        other.expect("put back 1")
        other.kill()
    endpoint = Endpoint()
    listen("orphaned", endpoint, pool="pool", allow_requeue=True)
    eventually(lambda: endpoint.seen == [1])


def test_batches_are_full_or_have_waited(notifier: Make, listen: Make) -> None:
    notify, endpoint = notifier("batches"), Batches()
    for n in range(7):
        notify(n)
    listen("batches", endpoint, batch_size=3, batch_timeout=10)
    eventually(lambda: sorted(endpoint.seen) == list(range(7)))
    assert sorted(endpoint.sizes) == [1, 3, 3]


def test_a_batch_that_is_not_full_is_handed_over_when_the_listener_stops(notifier: Make, listen: Make) -> None:
    notify, endpoint = notifier("last"), Batches()
    listener = listen("last", endpoint, batch_size=100)
    for n in range(5):
        notify(n)
    eventually(lambda: len(listener.listener._waiting) == 5)
    listener.stop()
    listener.wait()
    assert endpoint.sizes == [5]
