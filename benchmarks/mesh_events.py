"""Events of one publisher at router a to a subscriber at each of three routers, beside a NATS cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import Any

import gevent

from benchmarks.children import Child, child, commands, cpu_seconds, say
from benchmarks.ends import answer
from benchmarks.nats_cluster import nats_cluster, nats_missing
from benchmarks.report import Benchmark, Options, Row
from benchmarks.workload import ARGUMENTS, CONTEXT
from rpcmq import Client
from rpcmq.testing.router_mesh import RouterMesh

__all__ = ["BENCHMARK"]

_OURS = "rpcmq, mesh of 3"
_ALONE = "rpcmq, one router for all"
_CLUSTER = "NATS, cluster of 3"
#: Subscribers at each router: a link carries one copy, however many there are.
_SUBSCRIBERS = (1, 4)
_ROUTERS = 3
#: No more than a router keeps for a subscriber that is behind: none may be lost.
_EVENTS = 9_000
_EVENTS_PER_SECOND = 10_000
_TOGETHER = 20
_TOPIC = "disk.node-3.sda"


@dataclass(frozen=True)
class _System:
    publisher: Child
    subscribers: list[Child]
    #: Their processes.
    brokers: list[int]
    #: Messages that have crossed links between routers so far, acknowledgements not counted.
    crossed: Callable[[], int]


def run(options: Options) -> list[Row]:
    """Events/s that all subscribers have handled; copies on each link, and CPU time of all brokers for an event."""
    starts: dict[str, Callable[[int], AbstractContextManager[_System]]] = {
        _OURS: partial(_rpcmq, _ROUTERS),
        _ALONE: partial(_rpcmq, 1),
    }
    missing = nats_missing()
    if missing:
        options.notice(f"NATS: {missing}")
    else:
        starts[_CLUSTER] = _nats
    events = min(_EVENTS, max(500, int(options.seconds * _EVENTS_PER_SECOND)))
    rows = []
    for number in _SUBSCRIBERS:
        with ExitStack() as stack:
            systems = {name: stack.enter_context(start(number)) for name, start in starts.items()}
            group = [Row(name, number, []) for name in systems]
            for _ in range(options.rounds):
                for row in group:
                    row.samples.append(_sample(systems[row.system], events))
        rows += group
    return rows


def _sample(system: _System, events: int) -> dict[str, float]:
    for subscriber in system.subscribers:
        subscriber.ask(0, events=events)
    cpu, crossed = sum(map(cpu_seconds, system.brokers)), system.crossed()
    began = system.publisher.ask(10, events=events)
    seconds = max(subscriber.heard() for subscriber in system.subscribers) - began
    return {
        "events_per_second": events / seconds,
        "copies_per_link": (system.crossed() - crossed) / events / (_ROUTERS - 1),
        "cpu_us": (sum(map(cpu_seconds, system.brokers)) - cpu) / events * 1e6,
    }


@contextmanager
def _system(
    subscribe: Callable[..., None],
    publish: Callable[..., None],
    urls: list[str],
    number: int,
    brokers: list[int],
    crossed: Callable[[], int],
) -> Iterator[_System]:
    with ExitStack() as stack:
        subscribers = [stack.enter_context(child(subscribe, url=url, clients=number)) for url in urls]
        for subscriber in subscribers:
            subscriber.heard()
        publisher = stack.enter_context(child(publish, url=urls[0]))
        publisher.heard()
        yield _System(publisher, subscribers, brokers, crossed)


@contextmanager
def _rpcmq(count: int, number: int) -> Iterator[_System]:
    with RouterMesh(count) as mesh:
        routers = list(mesh)
        urls = [url for url, _ in zip(cycle(mesh.urls), range(_ROUTERS), strict=False)]

        def crossed() -> int:
            return sum(router.view("varz")["published"].get("from routers", 0) for router in routers)

        with _system(subscribe, publish, urls, number, [router.pid for router in routers], crossed) as system:
            yield system


@contextmanager
def _nats(number: int) -> Iterator[_System]:
    with nats_cluster(_ROUTERS) as cluster:

        def crossed() -> int:
            return sum(route["out_msgs"] for route in cluster[0].routes)

        urls, pids = [server.url for server in cluster], [server.process.pid for server in cluster]
        with _system(nats_subscribe, nats_publish, urls, number, pids, crossed) as system:
            yield system


# --- in the child --------------------------------------------------------------------------------


class _Counter:
    """Says when the last event that is expected has been handled."""

    def __init__(self) -> None:
        self._left = 0

    def expect(self, number: int) -> None:
        """Say when so many were handled."""
        self._left = number

    def handled(self) -> None:
        """Count one."""
        self._left -= 1
        if self._left == 0:
            say(perf_counter())


def subscribe(url: str, clients: int) -> None:
    """So many subscribers in one process, each with a link and an identity of its own."""
    counter = _Counter()
    for _ in range(clients):
        Client(url, shell="gevent").subscribe("disk.#", lambda ctx, topic, payload: counter.handled())
    say("ready")

    def expect(events: int) -> str:
        counter.expect(events * clients)
        return "armed"

    answer(expect)


def publish(url: str) -> None:
    """Publishes so many events; says when it began."""
    client = Client(url, shell="gevent")
    client.connect()
    say("ready")

    def published(events: int) -> float:
        began = perf_counter()
        for number in range(events):
            if not number % _TOGETHER:
                gevent.sleep(0)
            client.publish(CONTEXT, _TOPIC, ARGUMENTS)
        return began

    answer(published)


def nats_subscribe(url: str, clients: int) -> None:
    """As :func:`subscribe`."""

    async def run() -> None:
        import nats

        counter = _Counter()

        async def handle(event: Any) -> None:
            json.loads(event.data)
            counter.handled()

        for _ in range(clients):
            connection = await nats.connect(url)
            await connection.subscribe("disk.>", cb=handle, pending_msgs_limit=-1, pending_bytes_limit=-1)
            await connection.flush()
        # It confirms no subscription of other servers.
        await asyncio.sleep(0.2)
        say("ready")
        while True:
            command = await asyncio.to_thread(commands().get)
            counter.expect(command["events"] * clients)
            say("armed")

    asyncio.run(run())


def nats_publish(url: str) -> None:
    """As :func:`publish`."""

    async def run() -> None:
        import nats

        connection = await nats.connect(url)
        say("ready")
        while True:
            command = await asyncio.to_thread(commands().get)
            began = perf_counter()
            for number in range(command["events"]):
                if not number % _TOGETHER:
                    await asyncio.sleep(0)
                await connection.publish(_TOPIC, json.dumps({"context": CONTEXT, "payload": ARGUMENTS}).encode())
            await connection.flush()
            say(began)

    asyncio.run(run())


BENCHMARK = Benchmark(
    name="mesh-events",
    title="Events of one publisher to N subscribers at each of three routers, until all have handled all",
    case="subscribers",
    metric="events_per_second",
    ours=_OURS,
    run=run,
)
