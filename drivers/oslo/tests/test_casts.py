"""Casts and fanouts: who gets them, when they return, retries, and those whose router or listener is away."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from oslo_messaging.server import _pool_opts
from processes import Router, eventually

from rpcmq.errors import RouterUnreachable

Make = Callable[..., Any]


@pytest.fixture
def own_router() -> Iterator[Router]:
    """A router that may be killed."""
    with Router() as router:
        yield router


def test_a_cast_goes_to_one_and_a_fanout_to_all(serve: Make, client: Make) -> None:
    endpoints = [Endpoint() for _ in range(3)]
    for number, endpoint in enumerate(endpoints):
        serve(endpoint, server=f"node-{number}")
    caller = client()
    for n in range(20):
        caller.cast({}, "tell", n=n)
    eventually(lambda: sorted(n for e in endpoints for n in e.seen) == list(range(20)))
    caller.prepare(fanout=True).cast({}, "tell", n=100)
    eventually(lambda: all(100 in e.seen for e in endpoints))
    caller.prepare(server="node-1").cast({}, "tell", n=200)
    eventually(lambda: 200 in endpoints[1].seen)
    assert sum(e.seen.count(100) for e in endpoints) == 3 and sum(e.seen.count(200) for e in endpoints) == 1


def test_a_fanout_goes_to_the_listeners_of_its_exchange(serve: Make, client: Make) -> None:
    here, there = Endpoint(), Endpoint()
    serve(here)
    serve(there, exchange="other")
    client(target={"exchange": "other", "fanout": True}).cast({}, "tell", n=1)
    eventually(lambda: there.seen == [1])
    assert here.seen == []


def test_casts_wait_for_a_server_that_was_stopped(serve: Make, client: Make) -> None:
    server = serve(Endpoint(), topic="away")
    server.stop()
    server.wait()
    for n in range(20):
        client("away", target={"server": "node-1"} if n % 2 else {}).cast({}, "tell", n=n)
    back = Endpoint()
    serve(back, topic="away")
    eventually(lambda: sorted(back.seen) == list(range(20)))


def test_a_busy_server_is_given_no_more_casts_than_it_has_workers(serve: Make, client: Make, conf: Any) -> None:
    conf.register_opts(_pool_opts)
    conf.set_override("executor_thread_pool_size", 2)
    busy, idle = Endpoint(), Endpoint()
    serve(busy, topic="work", server="busy")
    caller = client("work")
    for n in range(8):
        caller.cast({}, "hold", n=n)
    eventually(lambda: len(busy.seen) == 2)
    idle.go_on.set()
    serve(idle, topic="work", server="idle")
    # All others were left to whoever comes.
    eventually(lambda: len(idle.seen) == 6)
    busy.go_on.set()
    eventually(lambda: sorted(busy.seen + idle.seen) == list(range(8)))


def test_retries_are_counted_where_there_is_no_router(conf: Any, client: Make, transport: Make) -> None:
    nowhere = transport("rpcmq://127.0.0.1:1/")
    with pytest.raises(oslo_messaging.MessageDeliveryFailure, match=r"tell to openstack/compute: .*retry=0"):
        client(over=nowhere, retry=0).cast({}, "tell", n=1)
    with pytest.raises(oslo_messaging.MessageDeliveryFailure, match="retry=1"):
        client(over=nowhere, retry=1, timeout=60).call({}, "tell", n=1)
    with pytest.raises(oslo_messaging.MessagingTimeout, match="tell to openstack/compute: "):
        client(over=nowhere, timeout=0.5).call({}, "tell", n=1)
    # The time is over before the attempts are.
    with pytest.raises(oslo_messaging.MessagingTimeout, match="tell to openstack/compute: it was not sent: "):
        client(over=nowhere, retry=60, timeout=0.5).call({}, "tell", n=1)


def is_away(over: Any) -> bool:
    """Return whether this process knows that its router is away: what it sends before that may have run."""
    try:
        over._driver._connection.client.connect(0.01)
    except RouterUnreachable:
        return True
    return False


def test_calls_and_casts_wait_for_the_router(
    own_router: Router, serve: Make, client: Make, transport: Make, in_thread: Make
) -> None:
    over = transport(own_router.url)
    endpoint = Endpoint()
    serve(endpoint, over=over)
    caller = client(over=over, timeout=60)
    assert caller.call({}, "tell", n=0) == 0
    own_router.kill()
    eventually(lambda: is_away(over))
    waiting = in_thread(caller.call, {}, "tell", n=1)
    casting = in_thread(caller.cast, {}, "tell", n=2)
    with pytest.raises(oslo_messaging.MessageDeliveryFailure):
        client(over=over, retry=0).cast({}, "tell", n=3)
    own_router.restart()
    assert waiting.result(60) == 1
    casting.result(60)
    eventually(lambda: sorted(endpoint.seen) == [0, 1, 2])


def test_no_cast_is_lost_or_doubled_when_the_router_is_killed(
    own_router: Router, serve: Make, client: Make, transport: Make, in_thread: Make
) -> None:
    over = transport(own_router.url)
    endpoint = Endpoint()
    serve(endpoint, over=over)
    caller = client(over=over)

    def cast() -> None:
        for n in range(400):
            caller.cast({}, "tell", n=n)
            time.sleep(0.002)

    casting = in_thread(cast)
    eventually(lambda: len(endpoint.seen) >= 100)
    own_router.kill()
    own_router.restart()
    casting.result(90)
    eventually(lambda: len(endpoint.seen) >= 400)
    assert sorted(endpoint.seen) == list(range(400))


def test_fanouts_under_way_when_the_router_is_killed_end_well_and_no_listener_gets_one_twice(
    own_router: Router, serve: Make, client: Make, transport: Make, in_thread: Make
) -> None:
    over = transport(own_router.url)
    endpoints = [Endpoint(), Endpoint()]
    for number, endpoint in enumerate(endpoints):
        serve(endpoint, server=f"node-{number}", over=over)
    fanout = client(over=over, target={"fanout": True})
    senders = [
        in_thread(lambda sender=sender: [fanout.cast({}, "tell", n=1000 * sender + n) for n in range(200)])
        for sender in range(4)
    ]
    eventually(lambda: len(endpoints[0].seen) >= 100)
    own_router.kill()
    own_router.restart()
    for sender in senders:
        sender.result(90)
    fanout.cast({}, "tell", n=-1)
    for endpoint in endpoints:
        eventually(lambda endpoint=endpoint: -1 in endpoint.seen)
        assert len(set(endpoint.seen)) == len(endpoint.seen)
        # What was confirmed and not passed on is lost with the router: some of the few that were under way.
        assert len(endpoint.seen) > 700


def test_a_silent_router_does_not_hold_a_call_beyond_its_timeout(
    own_router: Router, serve: Make, client: Make, transport: Make
) -> None:
    over = transport(own_router.url)
    serve(Endpoint(), over=over)
    caller = client(over=over, timeout=60)
    assert caller.call({}, "tell", n=0) == 0
    own_router.signal(signal.SIGSTOP)
    with pytest.raises(oslo_messaging.MessagingTimeout):
        caller.prepare(timeout=1).call({}, "tell", n=1)
    own_router.signal(signal.SIGCONT)
