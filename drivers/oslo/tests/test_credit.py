"""A busy server hoards nothing: what it cannot run yet waits in the router, for whoever is free."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from oslo_config import cfg
from oslo_messaging.server import _pool_opts
from processes import Process, Router, eventually, program
from topics import occupied, topic_of

Make = Callable[..., Any]
WORKERS = 4


class Endpoint:
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.go_on = threading.Event()

    def tell(self, ctxt: Any, n: int) -> None:
        self.seen.append(n)

    def hold(self, ctxt: Any, n: int) -> None:
        self.seen.append(n)
        self.go_on.wait(60)

    def leave(self, ctxt: Any, n: int) -> None:
        self.seen.append(n)
        raise SystemExit


@pytest.fixture(autouse=True)
def few_workers(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(_pool_opts)
    conf.set_override("executor_thread_pool_size", WORKERS)


@pytest.mark.parametrize("server", ["", "node"])
def test_what_a_busy_server_cannot_run_goes_to_an_idle_one(serve: Make, client: Make, server: str) -> None:
    topic = f"busy-{server or 'any'}"
    busy, idle = Endpoint(), Endpoint()
    caller = client(topic, target={"server": server} if server else {})
    serve(busy, topic=topic, server=server or "node-1")
    for n in range(WORKERS):
        caller.cast({}, "hold", n=n)
    eventually(lambda: len(busy.seen) == WORKERS)
    serve(idle, topic=topic, server=server or "node-2")
    for n in range(100, 100 + 5 * WORKERS):
        caller.cast({}, "tell", n=n)
    eventually(lambda: len(idle.seen) == 5 * WORKERS)
    assert len(busy.seen) == WORKERS
    busy.go_on.set()


def test_where_all_are_busy_casts_wait_in_the_router(serve: Make, client: Make, router: Router) -> None:
    endpoints = [Endpoint(), Endpoint()]
    caller = client("all-busy")
    for number, endpoint in enumerate(endpoints):
        serve(endpoint, topic="all-busy", server=f"node-{number}")
    for n in range(2 * WORKERS):
        caller.cast({}, "hold", n=n)
    eventually(lambda: sum(len(each.seen) for each in endpoints) == 2 * WORKERS)
    for n in range(100, 110):
        caller.cast({}, "tell", n=n)
    eventually(lambda: occupied(router, "all-busy") == [4, 4])
    row = topic_of(router, "all-busy")
    assert (row["queued"], row["in_flight"]) == (10, 0)
    endpoints[1].go_on.set()
    eventually(lambda: len(endpoints[1].seen) == WORKERS + 10)
    assert len(endpoints[0].seen) == WORKERS
    endpoints[0].go_on.set()
    eventually(lambda: occupied(router, "all-busy") == [0, 0])


@pytest.mark.skipif("green" in time.sleep.__module__, reason="eventlet has a green thread's SystemExit end the process")
def test_a_method_that_ends_by_no_usual_exception_takes_no_credit_for_ever(
    serve: Make, client: Make, router: Router, in_thread: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That of pytest keeps the exception, and so the message.
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    endpoint = Endpoint()
    serve(endpoint, topic="leaving")
    client("leaving").cast({}, "leave", n=1)
    eventually(lambda: endpoint.seen == [1] and occupied(router, "leaving") == [0])
    call = in_thread(client("leaving", timeout=60).call, {}, "leave", n=2)
    # The executor's future and the exception hold each other, until they are found.
    eventually(lambda: (gc.collect(), call.done())[1])
    with pytest.raises(RuntimeError, match="'leave' has ended with neither a result nor an exception"):
        call.result()
    eventually(lambda: topic_of(router, "leaving")["consumers"][0]["in_flight"] == 0)


@pytest.mark.parametrize("kind", ["native", "eventlet", "gevent"])
def test_of_two_servers_with_64_workers_each_has_64_and_the_rest_waits(kind: str, client: Make, router: Router) -> None:
    topic = f"crowd-{kind}"

    def begun(*servers: Process) -> list[int]:
        return sorted(int(line.split()[1]) for each in servers for line in each.lines if line.startswith("began"))

    def is_shared(queued: int, *occupied: int) -> bool:
        row = topic_of(router, topic)
        at_servers = [each["occupied"] for each in row["consumers"]]
        return (row["queued"], row["in_flight"], *at_servers) == (queued, 0, *occupied)

    caller = client(topic)
    with program("server", kind, router.url, topic, "node-1", "64") as first:
        first.expect("listening")
        for n in range(192):
            caller.cast({}, "hold", n=n)
        eventually(lambda: is_shared(128, 64) and len(begun(first)) == 64)
        with program("server", kind, router.url, topic, "node-2", "64") as second:
            second.expect("listening")
            eventually(lambda: is_shared(64, 64, 64))
            first.kill()
            # What it had begun is run nowhere else.
            eventually(lambda: is_shared(64, 64))
            eventually(lambda: len(begun(first, second)) >= 128)
            assert begun(first, second) == list(range(128))
