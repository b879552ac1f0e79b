"""A server that is started with ``override_pool_size`` is given as many messages as it has workers then, not more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from oslo_messaging.rpc.server import RPCServer
from processes import Process, Router, eventually, program
from topics import topic_of

from rpcmq_oslo.server_workers import workers_of

Make = Callable[..., Any]


def shares(router: Router, topic: str) -> tuple[int, list[tuple[str, int, int]]]:
    """Return what waits, and of each server its name, what it has, and how much it may have."""
    row = topic_of(router, topic)
    of_servers = [(each["server"], each["in_flight"] + each["occupied"], each["credit"]) for each in row["consumers"]]
    return row["queued"], sorted(of_servers)


@pytest.fixture
def begin() -> Iterator[Make]:
    """Starts servers and listeners with so many workers; all are stopped when the test is over."""
    made = []

    def begin(server: Any, workers: int) -> Any:
        made.append(server)
        server.start(override_pool_size=workers)
        return server

    yield begin
    for each in made:
        each.stop()
        each.wait()


@pytest.mark.parametrize("kind", ["native", "eventlet", "gevent"])
def test_fewer_and_more_workers_than_configured(kind: str, router: Router, client: Make) -> None:
    topic = f"own-size-{kind}"
    caller = client(topic)

    def begun(server: Process) -> int:
        return sum(line.startswith("began") for line in server.lines)

    with program("server", kind, router.url, topic, "a", "3") as few:
        few.expect("listening")
        for n in range(120):
            caller.cast({}, "hold", n=n)
        eventually(lambda: shares(router, topic) == (117, [("a", 3, 3)]) and begun(few) == 3)
        # More than executor_thread_pool_size, 64.
        with program("server", kind, router.url, topic, "b", "100") as many:
            many.expect("listening")
            eventually(lambda: shares(router, topic) == (17, [("a", 3, 3), ("b", 100, 100)]) and begun(many) == 100)


def test_calls_beyond_the_workers_wait_in_the_router(
    router: Router, transport: Make, client: Make, begin: Make, in_thread: Make
) -> None:
    endpoint = Endpoint()
    target = oslo_messaging.Target(topic="own-calls", server="node-1")
    begin(oslo_messaging.get_rpc_server(transport(), target, [endpoint]), 2)
    calls = [in_thread(client("own-calls", timeout=60).call, {}, "hold", n=n) for n in range(5)]
    eventually(lambda: shares(router, "own-calls") == (3, [("node-1", 2, 2)]) and len(endpoint.seen) == 2)
    endpoint.go_on.set()
    assert sorted(call.result(60) for call in calls) == list(range(5))


def test_what_has_come_before_the_start_is_shared_as_well(
    router: Router, transport: Make, client: Make, begin: Make
) -> None:
    caller = client("own-early")

    class Late(RPCServer):
        def _create_listener(self) -> Any:
            listener = super()._create_listener()
            for n in range(5):
                caller.cast({}, "hold", n=n)
            # A copy of this is for this server alone.
            caller.prepare(fanout=True).cast({}, "hold", n=5)
            eventually(lambda: len(listener._waiting) == 6)
            return listener

    endpoint = Endpoint()
    target = oslo_messaging.Target(topic="own-early", server="node-1")
    begin(oslo_messaging.get_rpc_server(transport(), target, [endpoint], server_cls=Late), 1)
    eventually(lambda: len(endpoint.seen) == 1)
    other = Endpoint()
    target = oslo_messaging.Target(topic="own-early", server="node-2")
    begin(oslo_messaging.get_rpc_server(transport(), target, [other]), 8)
    eventually(lambda: len(other.seen) == 4)
    endpoint.go_on.set()
    other.go_on.set()
    eventually(lambda: sorted(endpoint.seen + other.seen) == list(range(6)))
    assert 5 in endpoint.seen


class Held:
    """An endpoint of notifications, one by one or in batches, that holds all."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.go_on = threading.Event()

    def info(self, *message: Any) -> None:
        payloads = [each["payload"] for each in message[0]] if len(message) == 1 else [message[3]]
        self.seen += [payload["n"] for payload in payloads]
        self.go_on.wait(60)


@pytest.mark.parametrize("size", [1, 3])
def test_notifications_beyond_the_workers_wait_in_the_router(conf: Any, router: Router, begin: Make, size: int) -> None:
    name, endpoint = f"own-notes-{size}", Held()
    transport = oslo_messaging.get_notification_transport(conf, router.url)
    targets = [oslo_messaging.Target(topic=name)]
    if size == 1:
        listener = oslo_messaging.get_notification_listener(transport, targets, [endpoint])
    else:
        listener = oslo_messaging.get_batch_notification_listener(transport, targets, [endpoint], batch_size=size)
    begin(listener, 2)
    notifier = oslo_messaging.Notifier(transport, "test.host", driver="messagingv2", topics=[name])
    for n in range(4 * size):
        notifier.info({}, "held", {"n": n})
    eventually(lambda: shares(router, f"{name}:info") == (2 * size, [("", 2 * size, 2 * size)]))
    eventually(lambda: len(endpoint.seen) == 2 * size)
    endpoint.go_on.set()
    eventually(lambda: sorted(endpoint.seen) == list(range(4 * size)))
    listener.stop()
    listener.wait()
    transport.cleanup()


def test_only_a_server_of_oslo_messaging_says_how_many_workers_it_has(transport: Make) -> None:
    server = oslo_messaging.get_rpc_server(transport(), oslo_messaging.Target(topic="asked", server="a"), [Endpoint()])
    assert workers_of(server._on_incoming) is None, "it has no executor yet"
    server._work_executor = server._executor_cls(max_workers=7)
    assert workers_of(server._on_incoming) == 7
    assert workers_of(print) is None and workers_of([].append) is None
    server._work_executor = object()
    assert workers_of(server._on_incoming) is None
