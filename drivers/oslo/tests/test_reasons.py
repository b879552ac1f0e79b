"""The text of MessagingTimeout says why: no server, a busy one, a slow one, a router that is away."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging import MessagingTimeout
from processes import Router, eventually

Make = Callable[..., Any]
TRIES = 5


class Endpoint:
    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.running = threading.Semaphore(0)

    def hold(self, ctxt: Any) -> None:
        self.running.release()
        self.go_on.wait(60)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.go_on.set()


def told(client: Any, pattern: str) -> str:
    """Call until the reason is ``pattern``, and return the last one: who is held up by a busy machine tells none."""
    for _ in range(TRIES):
        if re.search(pattern, text := reason(client)):
            break
    return text


def reason(client: Any) -> str:
    with pytest.raises(MessagingTimeout) as caught:
        client.call({}, "hold")
    return str(caught.value)


@pytest.mark.parametrize("server", [None, "node-1"])
def test_no_server(client: Make, server: str | None) -> None:
    name = "nobody.node-1" if server else "nobody"
    pattern = rf"^hold to openstack/{name}: queued \d.\d s: no consumer on 'openstack/{name}' \(never seen\)$"
    text = told(client("nobody", target={"server": server}, timeout=1), pattern)
    assert re.search(pattern, text), text


def test_a_server_that_is_slow_and_one_that_is_busy(
    conf: Any, transport: Make, client: Make, endpoint: Endpoint
) -> None:
    over = transport()
    target = oslo_messaging.Target(topic="busy", server="node-1")
    server = oslo_messaging.get_rpc_server(over, target, [endpoint])
    conf.set_override("executor_thread_pool_size", TRIES)
    server.start()
    try:
        running = r"with \S+ for \d\.\d s, running"
        text = told(client("busy", timeout=2), running)
        assert re.search(running, text), text
        # Those that have timed out run on; the other workers are taken as well.
        for _ in range(TRIES):
            client("busy").cast({}, "hold")
        for _ in range(TRIES):
            assert endpoint.running.acquire(timeout=60)
        busy = r"queued \d\.\d s: all 1 consumers of 'openstack/busy' are busy \(5 of 5 in flight\)"
        text = told(client("busy", timeout=2), busy)
        assert re.search(busy, text), text
    finally:
        endpoint.go_on.set()
        server.stop()
        server.wait()


def test_a_router_that_is_away_from_the_start(transport: Make, client: Make) -> None:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (one, two)]
        pattern = rf"router tcp://127\.0\.0\.1:{ports[0]} not reachable.*nothing listens there"
        text = told(client(over=transport(f"rpcmq://127.0.0.1:{ports[0]}/"), timeout=1), pattern)
        assert re.search(pattern, text), text
        pattern = "".join(rf"(?=.*tcp://127\.0\.0\.1:{port}: nothing listens there)" for port in ports)
        both = ",".join(f"127.0.0.1:{port}" for port in ports)
        text = told(client(over=transport(f"rpcmq://{both}/"), timeout=1), pattern)
        assert re.search(pattern, text), text


def test_a_router_that_hangs_or_dies(transport: Make) -> None:
    with Router() as router:
        over = transport(router.url)
        caller = oslo_messaging.get_rpc_client(over, oslo_messaging.Target(topic="nobody"), timeout=3)
        eventually(lambda: "no consumer" in reason(caller))
        router.signal(signal.SIGSTOP)
        text = reason(caller)
        assert re.search(r"no answer within 3(\.0)? s from 'openstack/nobody'; the router was last heard \d", text), (
            text
        )
        router.signal(signal.SIGCONT)
        eventually(lambda: "no consumer" in reason(caller))
        router.kill()
        eventually(lambda: "no connection to the router for" in (text := reason(caller)) and "did not run" in text)
