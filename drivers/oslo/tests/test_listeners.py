"""Listeners: shutdown in order, what nobody waits for any more, and what a listener that is killed had."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from hoarding import HoardingServer
from oslo_messaging import MessagingTimeout
from oslo_messaging.server import _pool_opts
from processes import IS_PATCHED, Router, eventually, program
from topics import occupied, topic_of

from rpcmq_oslo.driver import RpcmqDriver

Make = Callable[..., Any]


def test_replies_go_out_between_stop_and_wait(serve: Make, client: Make, in_thread: Make) -> None:
    endpoint = Endpoint()
    server = serve(endpoint, topic="stopping")
    caller = client("stopping", timeout=60)
    calls = [in_thread(caller.call, {}, "hold", n=n) for n in range(3)]
    eventually(lambda: len(endpoint.seen) == 3)
    server.stop()
    with pytest.raises(MessagingTimeout):
        caller.prepare(timeout=0.5).call({}, "hold", n=9)
    assert 9 not in endpoint.seen
    endpoint.go_on.set()
    server.wait()
    assert [call.result(60) for call in calls] == [0, 1, 2]


@pytest.mark.skipif(IS_PATCHED, reason="a thread of the system cannot call what green threads run")
def test_a_server_is_handed_messages_by_the_thread_of_the_sockets(
    serve: Make, client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    by: list[str] = []
    submit = oslo_messaging.server.MessageHandlingServer._on_incoming

    def noted(self: Any, incoming: Any) -> None:
        by.append(threading.current_thread().name)
        submit(self, incoming)

    monkeypatch.setattr(oslo_messaging.server.MessageHandlingServer, "_on_incoming", noted)
    serve(Endpoint(), topic="direct")
    client("direct").call({}, "tell", n=1)
    assert len(by) == 1 and not by[0].startswith("rpcmq worker")


def test_a_callback_that_waits_holds_up_nobody_else(transport: Make, serve: Make, client: Make) -> None:
    shared = transport()
    begun, go_on = threading.Event(), threading.Event()

    def wait(messages: list[Any]) -> None:
        begun.set()
        go_on.wait(120)

    listener = shared._driver.listen(
        oslo_messaging.Target(topic="waits", server="node-1", exchange="openstack"), 1, None
    )
    listener.start(wait)
    try:
        client("waits", over=shared).cast({}, "tell", n=1)
        assert begun.wait(60)
        serve(Endpoint(), topic="beside", over=shared)
        assert client("beside", over=shared, timeout=60).call({}, "tell", n=2) == 2
    finally:
        go_on.set()
        listener.stop()
        listener.cleanup()


def test_a_call_whose_caller_has_given_up_is_not_begun(
    transport: Make, client: Make, in_thread: Make, router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint()
    target = oslo_messaging.Target(topic="slow", server="node-1")
    server = oslo_messaging.get_rpc_server(transport(), target, [endpoint], server_cls=HoardingServer)
    server.start(override_pool_size=1)
    caller = client("slow", timeout=60)
    first = in_thread(caller.call, {}, "hold", n=1)
    eventually(lambda: endpoint.seen == [1])

    def has_been_given() -> bool:
        with pytest.raises(MessagingTimeout):
            caller.prepare(timeout=1).call({}, "tell", n=2)
        return bool(topic_of(router, "slow")["in_flight"] == 2)

    # A router that a busy machine holds up gives it to nobody in that time.
    assert any(has_been_given() for _ in range(20))
    with caplog.at_level(logging.WARNING):
        endpoint.go_on.set()
        assert first.result(60) == 1
        assert caller.call({}, "tell", n=3) == 3
    assert endpoint.seen == [1, 3]
    (told,) = [each for each in caplog.records if each.name == "oslo_messaging.rpc.server"]
    assert told.levelname == "WARNING" and told.exc_info is None
    assert told.getMessage() == "the call of 'tell' was not begun: its caller has given up"
    server.stop()
    server.wait()


def test_what_a_killed_server_has_not_begun_goes_to_another(serve: Make, client: Make, router: Router) -> None:
    caller = client("fatal")
    with program("server", "native", router.url, "fatal", "node-1", "1", "hoards") as doomed:
        doomed.expect("listening")
        for n in range(10):
            caller.cast({}, "hold", n=n)
        begun = int(doomed.expect(r"began (\d)")[1])
        eventually(lambda: occupied(router, "fatal") == [1])
        doomed.kill()
    endpoint = Endpoint()
    endpoint.go_on.set()
    serve(endpoint, topic="fatal", server="node-2")
    # At most once: the one that was begun is not begun again.
    eventually(lambda: sorted(endpoint.seen) == [n for n in range(10) if n != begun])


def test_a_call_whose_server_is_killed_ends_with_the_reason_before_its_timeout(
    client: Make, in_thread: Make, router: Router
) -> None:
    caller = client("killed", timeout=100)
    with program("server", "native", router.url, "killed", "node-1") as doomed:
        doomed.expect("listening")
        call = in_thread(caller.call, {}, "hold", n=1)
        doomed.expect("began 1")
        doomed.kill()
        with pytest.raises(MessagingTimeout, match="hold to openstack/killed: "):
            call.result(80)


def test_after_stop_the_server_is_given_nothing(conf: Any, router: Router) -> None:
    conf.register_opts(_pool_opts)
    driver: RpcmqDriver = oslo_messaging.get_rpc_transport(conf, router.url)._driver
    target = oslo_messaging.Target(topic="raw", server="node-1")
    listener = driver.listen(target, 1, None)
    for n in range(5):
        driver.send(target, {}, {"method": "tell", "args": {"n": n}})
    eventually(lambda: len(listener._waiting) == 5)
    got: list[Any] = []
    listener.start(got.extend)
    assert sorted(each.message["args"]["n"] for each in got) == list(range(5))
    assert all(each.ctxt == {} and each.client_timeout is None and each.msg_id for each in got)
    for each in got:
        each.acknowledge()
        each.reply(None)
    listener.stop()
    driver.send(target, {}, {"method": "tell", "args": {"n": 5}})
    again = driver.listen(target, 1, None)
    again.start(got.extend)
    eventually(lambda: len(got) == 6)
    assert listener.on_incoming_callback is None
    got[5].acknowledge()
    for each in (listener, again):
        each.stop()
        each.cleanup()
        each.cleanup()
    driver.cleanup()
