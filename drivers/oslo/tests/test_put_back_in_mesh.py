"""Put-back messages of a listener at one router of a mesh go to one at another, also if a router dies then."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import oslo_messaging
from oslo_messaging.server import _pool_opts
from processes import eventually, program, routers_of_mesh

COUNT, WORKERS = 40, 4


class Takes:
    """Takes a few, and the others when it is told to go on."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.go_on = threading.Event()

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self.seen.append(payload["n"])
        if len(self.seen) > COUNT // 8:
            self.go_on.wait(60)


def test_a_router_dies_while_what_was_put_back_goes_to_a_listener_at_another_one(conf: Any) -> None:
    with ExitStack() as stack:
        first, second = stack.enter_context(routers_of_mesh("ab"))
        unwilling = stack.enter_context(program("listener", first.url, "unwanted", ""))
        unwilling.expect("listening")
        transports = [oslo_messaging.get_notification_transport(conf, router.url) for router in (first, second)]
        for transport in transports:
            stack.callback(transport.cleanup)
        notifier = oslo_messaging.Notifier(transports[0], "host", driver="messagingv2", topics=["unwanted"])
        for n in range(COUNT):
            notifier.info({}, "instance.create", {"n": n})
        for _ in range(COUNT):
            unwilling.expect("put back")
        endpoint = Takes()
        target = oslo_messaging.Target(topic="unwanted")
        conf.register_opts(_pool_opts)
        conf.set_override("executor_thread_pool_size", WORKERS)
        listener = oslo_messaging.get_notification_listener(transports[1], [target], [endpoint])
        listener.start()
        stack.callback(listener.wait)
        stack.callback(listener.stop)
        # Others are at the listener still, and wait there until they are given back, or are on their way.
        eventually(lambda: len(endpoint.seen) > COUNT // 8)
        first.kill()
        endpoint.go_on.set()
        eventually(lambda: len(endpoint.seen) >= COUNT)
        assert sorted(endpoint.seen) == list(range(COUNT))
        assert unwilling.popen.poll() is None
