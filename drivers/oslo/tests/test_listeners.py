"""Listeners: shutdown in order, what nobody waits for any more, and what a listener that is killed had."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging import MessagingTimeout
from oslo_messaging.server import _pool_opts
from processes import Router, eventually, program

from rpcmq_oslo.driver import RpcmqDriver

Make = Callable[..., Any]


class Endpoint:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.go_on = threading.Event()

    def tell(self, ctxt: Any, n: int) -> int:
        self.seen.append(n)
        return n

    def hold(self, ctxt: Any, n: int) -> int:
        self.seen.append(n)
        self.go_on.wait(60)
        return n


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Call ``function`` in a thread; return that, and the list that gets its result or exception."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_replies_go_out_between_stop_and_wait(serve: Make, client: Make) -> None:
    endpoint = Endpoint()
    server = serve(endpoint, topic="stopping")
    caller = client("stopping", timeout=60)
    threads = [in_thread(lambda n=n: caller.call({}, "hold", n=n)) for n in range(3)]
    eventually(lambda: len(endpoint.seen) == 3)
    server.stop()
    late, results = in_thread(lambda: caller.prepare(timeout=0.5).call({}, "hold", n=9))
    late.join(30)
    assert isinstance(results[0], MessagingTimeout) and 9 not in endpoint.seen
    endpoint.go_on.set()
    server.wait()
    for n, (thread, answers) in enumerate(threads):
        thread.join(30)
        assert answers == [n]


def test_a_call_whose_caller_has_given_up_is_not_begun(
    transport: Make, client: Make, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint()
    target = oslo_messaging.Target(topic="slow", server="node-1")
    server = oslo_messaging.get_rpc_server(transport(), target, [endpoint])
    server.start(override_pool_size=1)
    caller = client("slow", timeout=60)
    first, answers = in_thread(lambda: caller.call({}, "hold", n=1))
    eventually(lambda: endpoint.seen == [1])
    with pytest.raises(MessagingTimeout):
        caller.prepare(timeout=0.5).call({}, "tell", n=2)
    with caplog.at_level(logging.ERROR):
        endpoint.go_on.set()
        first.join(30)
        assert caller.call({}, "tell", n=3) == 3
    assert (answers, endpoint.seen) == ([1], [1, 3])
    assert "was not begun: its caller has given up" in caplog.text
    server.stop()
    server.wait()


def test_what_a_killed_server_has_not_begun_goes_to_another(serve: Make, client: Make, router: Router) -> None:
    caller = client("fatal")
    with program("server", "native", router.url, "fatal", "node-1") as doomed:
        doomed.expect("listening")
        for n in range(10):
            caller.cast({}, "hold", n=n)
        begun = int(doomed.expect(r"began (\d)")[1])
        doomed.kill()
    endpoint = Endpoint()
    endpoint.go_on.set()
    serve(endpoint, topic="fatal", server="node-2")
    # At most once: the one that was begun is not begun again.
    eventually(lambda: sorted(endpoint.seen) == [n for n in range(10) if n != begun])


def test_a_call_whose_server_is_killed_ends_with_the_reason_before_its_timeout(client: Make, router: Router) -> None:
    caller = client("killed", timeout=60)
    with program("server", "native", router.url, "killed", "node-1") as doomed:
        doomed.expect("listening")
        thread, results = in_thread(lambda: caller.call({}, "hold", n=1))
        doomed.expect("began 1")
        doomed.kill()
        thread.join(30)
    assert not thread.is_alive()
    assert isinstance(results[0], MessagingTimeout) and "hold to openstack/killed: " in str(results[0])


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
