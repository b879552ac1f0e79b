"""One side has given up, and the other does not know yet: silent routers and servers, late answers, cleanups."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from oslo_config import cfg
from oslo_messaging import MessagingTimeout
from processes import Router, eventually, program
from topics import occupied, queued

Make = Callable[..., Any]
Start = Callable[..., Future[Any]]


@pytest.fixture
def own_router() -> Iterator[Router]:
    """A router of this test alone, which soon takes silent processes for lost."""
    patience = {"heartbeat": "0.5", "unresponsive": "4", "lost": "6", "resume": "0.1"}
    with Router(**{f"link_{name}_seconds": seconds for name, seconds in patience.items()}) as router:
        yield router


@pytest.fixture
def stopped() -> Iterator[Router]:
    """A router of this test alone, which may be stopped."""
    with Router() as router:
        yield router


def test_a_cast_returns_when_the_router_has_it(
    stopped: Router, transport: Make, client: Make, serve: Make, in_thread: Start
) -> None:
    over = transport(stopped.url)
    endpoint = Endpoint()
    serve(endpoint, over=over)
    caller = client(over=over)
    assert caller.call({}, "tell", n=0) == 0
    stopped.signal(signal.SIGSTOP)
    target = oslo_messaging.Target(topic="compute")
    waits = [in_thread(caller.cast, {}, "tell", n=1), in_thread(caller.prepare(fanout=True).cast, {}, "tell", n=2)]
    with pytest.raises(MessagingTimeout, match=r"tell to openstack/compute: the router has not confirmed"):
        over._driver.send(target, {}, {"method": "tell", "args": {"n": 3}}, timeout=0.5)
    assert not any(each.done() for each in waits)
    stopped.signal(signal.SIGCONT)
    for each in waits:
        each.result(60)
    eventually(lambda: {1, 2} <= set(endpoint.seen))
    # The one that was given up may have come; none has come twice.
    assert sorted(set(endpoint.seen)) == sorted(endpoint.seen)


def test_a_cast_that_was_given_to_another_meanwhile_is_not_begun(
    own_router: Router, client: Make, serve: Make, transport: Make
) -> None:
    over = transport(own_router.url)
    caller = client("silent", over=over)
    with program("server", "native", own_router.url, "silent", "node-1", "1", "hoards") as silent:
        silent.expect("listening")
        for n in range(4):
            caller.cast({}, "hold", n=n)
        begun = int(silent.expect(r"began (\d)")[1])
        eventually(lambda: occupied(own_router, "silent") == [1])
        # It has others by now, which its only worker has not begun.
        silent.signal(signal.SIGSTOP)
        endpoint = Endpoint()
        endpoint.go_on.set()
        serve(endpoint, topic="silent", server="node-2", over=over)
        eventually(lambda: sorted(endpoint.seen) == [n for n in range(4) if n != begun], 60)
        silent.signal(signal.SIGCONT)
        options = oslo_messaging.TransportOptions(at_least_once=True)
        back = client("silent", over=over, target={"server": "node-1"}, transport_options=options)

        def is_back() -> bool:
            try:
                back.cast({}, "hold", n=100)
            except oslo_messaging.MessageUndeliverable:
                return False
            return True

        # So it has heard that it was taken for lost.
        eventually(is_back)
        silent.signal(signal.SIGUSR1)
        for n in range(101, 104):
            caller.prepare(server="node-1").cast({}, "hold", n=n)
        for n in range(100, 104):
            silent.expect(f"began {n}")
        ran = [line for line in silent.lines if line.startswith("began")]
    assert len(ran) == 5, ran


def test_an_answer_that_nobody_waits_for_harms_nobody(
    client: Make, serve: Make, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint()
    serve(endpoint, topic="late")
    caller = client("late", timeout=60)

    def is_held() -> bool:
        with pytest.raises(MessagingTimeout):
            caller.prepare(timeout=0.5).call({}, "hold", n=1)
        return bool(endpoint.seen)

    # On a busy machine it may not be begun in that time, and is not begun later then.
    eventually(is_held)
    with caplog.at_level(logging.WARNING):
        endpoint.go_on.set()
        assert [caller.call({}, "tell", n=n) for n in range(5)] == list(range(5))
    assert endpoint.seen[-6:] == [1, *range(5)]
    assert not [record for record in caplog.records if record.name.startswith("rpcmq")]


def test_servers_answer_the_ping_of_oslo_messaging(serve: Make, client: Make) -> None:
    oslo_messaging.rpc.dispatcher.RPCDispatcher([], None)  # registers the option
    cfg.CONF.set_override("rpc_ping_enabled", True)
    try:
        serve(Endpoint(), topic="pinged")
        assert client("pinged", target={"server": "node-1"}, timeout=60).call({}, "oslo_rpc_server_ping") == "pong"
    finally:
        cfg.CONF.clear_override("rpc_ping_enabled")


def test_cleanup_twice_and_while_a_call_waits(conf: Any, router: Router, in_thread: Start) -> None:
    target = oslo_messaging.Target(topic="cleaned", server="node-1")
    transport = oslo_messaging.get_rpc_transport(conf, router.url)
    endpoint = Endpoint()
    server = oslo_messaging.get_rpc_server(transport, target, [endpoint])
    server.start()
    call = in_thread(oslo_messaging.get_rpc_client(transport, target, timeout=60).call, {}, "hold", n=1)
    eventually(lambda: endpoint.seen == [1])
    transport.cleanup()
    transport.cleanup()
    # The listener uses the connection still.
    endpoint.go_on.set()
    assert call.result(60) == 1
    server.stop()
    server.wait()
    waiting = in_thread(oslo_messaging.get_rpc_client(transport, target, timeout=60).call, {}, "hold", n=2)
    eventually(lambda: queued(router, "cleaned") == 1)
    transport.cleanup()
    with pytest.raises(oslo_messaging.MessagingException):
        waiting.result(60)
    transport.cleanup()
