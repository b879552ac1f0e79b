"""Rows of the contract of oslo.messaging's drivers that the other files are not about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from oslo_messaging import MessageDeliveryFailure, MessagingTimeout
from processes import Router, eventually, program

from rpcmq_oslo.driver import RpcmqDriver
from rpcmq_oslo.incoming import Incoming

Make = Callable[..., Any]
TELL = {"method": "tell", "args": {"n": (1,), "odd": {1: None}}}


class Notified:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.seen.append(payload["n"])


@pytest.fixture
def notifications(conf: Any, router: Router) -> Iterator[Any]:
    """A transport of notifications."""
    made = oslo_messaging.get_notification_transport(conf, router.url)
    yield made
    made.cleanup()


@pytest.fixture
def listen(notifications: Any) -> Iterator[Make]:
    """Starts listeners of some targets; all are stopped when the test is over."""
    made = []

    def listen(*targets: Any) -> Notified:
        endpoint = Notified()
        made.append(oslo_messaging.get_notification_listener(notifications, targets, [endpoint]))
        made[-1].start()
        return endpoint

    yield listen
    for each in made:
        each.stop()
        each.wait()


# --- sending ---------------------------------------------------------------------------------------


def test_a_cast_for_a_server_never_falls_back_to_the_topic(serve: Make, client: Make) -> None:
    here = Endpoint()
    serve(here, topic="apart", server="node-1")
    caller = client("apart")
    caller.prepare(server="node-2").cast({}, "tell", n=1)
    caller.cast({}, "tell", n=2)
    eventually(lambda: here.seen)
    there = Endpoint()
    serve(there, topic="apart", server="node-2")
    eventually(lambda: there.seen)
    assert (here.seen, there.seen) == ([2], [1])


@pytest.mark.parametrize("fanout", [False, True], ids=["cast", "fanout"])
def test_the_dicts_of_a_cast_are_not_changed(transport: Make, fanout: bool) -> None:
    context, message = {"user": {"a", "b"}}, deepcopy(TELL)
    transport()._send(oslo_messaging.Target(topic="nobody", fanout=fanout), context, message)
    assert (context, message) == ({"user": {"a", "b"}}, TELL)


def test_those_of_a_notification_are_not_changed(notifications: Any) -> None:
    context, message = {"user": ("a",)}, {"event_type": "instance.create", "payload": {"n": (1,)}}
    before = deepcopy(message)
    notifications._send_notification(oslo_messaging.Target(topic="nobody.info"), context, message, 2.0)
    assert (context, message) == ({"user": ("a",)}, before)


def test_the_timeout_ends_a_call_that_its_server_still_gives_heartbeats_of(serve: Make, client: Make) -> None:
    endpoint = Endpoint()
    serve(endpoint, topic="monitored")
    with pytest.raises(MessagingTimeout, match="hold to openstack/monitored: "):
        client("monitored", timeout=2, call_monitor_timeout=600).call({}, "hold", n=1)
    endpoint.go_on.set()


@pytest.mark.parametrize("retry", [None, -1])
def test_without_a_number_of_retries_a_cast_waits_for_a_router(
    transport: Make, client: Make, serve: Make, in_thread: Make, retry: int | None
) -> None:
    with Router() as router:
        over, endpoint = transport(router.url), Endpoint()
        serve(endpoint, over=over)
        router.kill()
        cast = in_thread(client(over=over, retry=retry).cast, {}, "tell", n=1)
        router.restart()
        assert cast.result(60) is None
        eventually(lambda: endpoint.seen == [1])


# --- notifications ---------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["messaging", "messagingv2"])
def test_each_version_of_the_notification_driver_is_listened_to(notifications: Any, listen: Make, driver: str) -> None:
    topic = f"by-{driver}"
    endpoint = listen(oslo_messaging.Target(topic=topic))
    notifier = oslo_messaging.Notifier(notifications, "host", driver=driver, topics=[topic])
    notifier.info({}, "instance.create", {"n": 1})
    eventually(lambda: endpoint.seen == [1])


def test_a_listener_hears_all_its_targets_and_no_other_exchange(notifications: Any, listen: Make) -> None:
    heard = [("nova", "one"), ("nova", "two"), ("cinder", "one")]
    endpoint = listen(*(oslo_messaging.Target(topic=topic, exchange=exchange) for exchange, topic in heard))
    for n, (exchange, topic) in enumerate([("heat", "one"), ("cinder", "two"), *heard]):
        target = oslo_messaging.Target(topic=f"{topic}.info", exchange=exchange)
        message = {"event_type": "instance.create", "publisher_id": "host", "payload": {"n": n}, "priority": "INFO"}
        notifications._send_notification(target, {}, message | {"message_id": f"{n}", "timestamp": ""}, 2.0)
    eventually(lambda: len(endpoint.seen) >= len(heard))
    assert sorted(endpoint.seen) == [2, 3, 4]


def test_the_retries_of_a_notification_are_counted(conf: Any) -> None:
    nowhere = oslo_messaging.get_notification_transport(conf, "rpcmq://127.0.0.1:1/")
    with pytest.raises(MessageDeliveryFailure, match="retry=0"):
        nowhere._send_notification(oslo_messaging.Target(topic="kept.info"), {}, {}, 2.0, retry=0)
    nowhere.cleanup()


def test_what_a_listener_has_not_dispatched_goes_to_another_one_when_it_is_killed(
    notifications: Any, listen: Make, router: Router
) -> None:
    notifier = oslo_messaging.Notifier(notifications, "host", driver="messagingv2", topics=["fatal"])
    with program("listener", router.url, "fatal", "", "hold") as doomed:
        doomed.expect("listening")
        notifier.info({}, "instance.create", {"n": 1})
        doomed.expect("has 1")
        doomed.kill()
    endpoint = listen(oslo_messaging.Target(topic="fatal"))
    eventually(lambda: endpoint.seen == [1])


# --- the driver itself -----------------------------------------------------------------------------


@pytest.fixture
def driver(transport: Make) -> RpcmqDriver:
    made: RpcmqDriver = transport()._driver
    return made


def test_all_features_may_be_required(driver: RpcmqDriver) -> None:
    driver.require_features()
    driver.require_features(requeue=True)


def test_a_listener_that_is_made_is_known_to_the_router(driver: RpcmqDriver, client: Make) -> None:
    options = oslo_messaging.TransportOptions(at_least_once=True)
    for n in range(5):
        target = oslo_messaging.Target(topic="known", server=f"node-{n}")
        listener = driver.listen(target, 1, None)
        client("known", target={"server": f"node-{n}"}, transport_options=options).cast({}, "tell", n=n)
        listener.cleanup()


def test_messages_have_what_servers_of_oslo_messaging_read(driver: RpcmqDriver, in_thread: Make) -> None:
    target = oslo_messaging.Target(topic="read", server="node-1")
    listener = driver.listen(target, 1, None)
    got: list[Incoming] = []
    listener.start(got.extend)
    message = {"method": "tell", "args": {"n": 1}, "namespace": "space", "version": "1.1"}
    call = in_thread(
        driver.send, target, {"user": "a"}, message, wait_for_reply=True, timeout=60, call_monitor_timeout=7
    )
    eventually(lambda: got)
    assert (got[0].ctxt, got[0].message, got[0].client_timeout) == ({"user": "a"}, message, 7)
    assert type(got[0].client_timeout) is int and got[0].msg_id
    got[0].acknowledge()
    got[0].heartbeat()
    got[0].reply(None)
    assert call.result(60) is None
    driver.send(target, {}, message)
    eventually(lambda: len(got) == 2)
    got[1].acknowledge()
    got[1].reply({"nobody": "reads it"})
    assert got[1].client_timeout is None and got[1].msg_id != got[0].msg_id
    listener.stop()
    listener.cleanup()
