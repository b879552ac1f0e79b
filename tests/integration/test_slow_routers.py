"""Routers that read slowly, and slow connections between routers."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from time import monotonic
from typing import Any

import gevent
import pytest

from rpcmq.client import Client, Service
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import Proxy, message

pytestmark = [pytest.mark.integration, pytest.mark.long]


class Worker:
    """Counts the times that each call was started."""

    def __init__(self) -> None:
        self.started: Counter[int] = Counter()

    def work(self, context: object, number: int, data: str) -> int:
        self.started[number] += 1
        return len(data)


class SlowProxy(Proxy):
    """Lets ``megabits`` a second through, each way."""

    def __init__(self, url: str, megabits: float) -> None:
        self._rate = megabits * 1e6 / 8
        super().__init__(url)

    def _pump(self, source: Any, sink: Any) -> None:
        free_at = monotonic()
        try:
            while data := source.recv(16384):
                sink.sendall(data)
                free_at = max(free_at, monotonic() - 0.02) + len(data) / self._rate
                gevent.sleep(max(0.0, free_at - monotonic()))
        except OSError:
            pass


def row(router: RouterProcess, other: str) -> dict[str, Any]:
    """The row of another router in the view of ``router``."""
    found: dict[str, Any] = next((row for row in router.view("mesh")["routers"] if row["name"] == other), {})
    return found


def test_a_relay_drops_what_a_stopped_router_does_not_read_and_no_call_is_lost_or_doubled() -> None:
    routers: dict[str, RouterProcess] = {}
    with ExitStack() as stack:
        for name, peer in ("a", ""), ("b", "a"), ("c", "b"):
            peers = routers[peer].url if peer else ""
            made = RouterProcess(
                router_name=name, mesh_peers=peers, mesh_dial="peers", mesh_max_transit_bytes=1 << 20,
                mesh_silence_seconds=5.0, mesh_lost_seconds=30.0,
            )  # fmt: skip
            routers[name] = stack.enter_context(made)
        a, b, c = routers.values()
        eventually(lambda: row(a, "c").get("state") == row(c, "a").get("state") == "answering")
        worker = Worker()
        client = stack.enter_context(Client([a.url]))
        stack.enter_context(Service("slow", worker, router=[c.url], concurrency=200))
        eventually(lambda: client.call(None, "slow", message("work", number=-1, data=""), timeout=30) == 0)
        c.pause()
        calls = [
            gevent.spawn(client.call, None, "slow", message("work", number=number, data="x" * 100_000), timeout=60)
            for number in range(100)
        ]
        full = "batches not passed on: more than mesh.max_transit_bytes"
        eventually(lambda: b.varz()["counters"].get(full))
        c.resume()
        assert [call.get(timeout=60) for call in calls] == [100_000] * 100
        assert worker.started == Counter(range(-1, 100))


def test_a_large_payload_over_a_slow_connection_ends_no_link() -> None:
    size = 24 << 20
    with ExitStack() as stack:
        a = stack.enter_context(RouterProcess(router_name="a"))
        proxy = stack.enter_context(SlowProxy(a.url, megabits=40))
        quick: dict[str, Any] = {"mesh_silence_seconds": 1.2, "mesh_lost_seconds": 2.5}
        b = stack.enter_context(RouterProcess(router_name="b", mesh_peers=proxy.url, mesh_dial="peers", **quick))
        eventually(lambda: row(b, "a").get("state") == row(a, "b").get("state") == "answering")
        client = stack.enter_context(Client([a.url]))
        worker = Worker()
        stack.enter_context(Service("slow", worker, router=[b.url]))
        eventually(lambda: client.call(None, "slow", message("work", number=-1, data=""), timeout=30) == 0)
        # 5 s, in which no other whole message comes.
        call = message("work", number=1, data="x" * size)
        assert client.call(None, "slow", call, timeout=60) == size
        assert worker.started[1] == 1
        assert proxy.connections == 1 and row(b, "a")["counters"]["connects"] == 1
