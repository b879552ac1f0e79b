"""Processes whose routers are a mesh: one link for everything, at one router, and they go on at others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gevent
import pytest

import rpcmq.aio
from rpcmq import testing
from rpcmq.client import Client, Service
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing.router_mesh import RouterMesh
from tests import from_threads
from tests.from_threads import each_blocking_shell
from tests.integration.cluster import message

client_shell = each_blocking_shell

Routers = tuple[InProcessRouter, ...]


class Echo:
    def echo(self, ctx: Any, value: Any = None) -> Any:
        return value


@pytest.fixture
def routers() -> Iterator[Routers]:
    with testing.routers(2) as both:
        yield tuple(both)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def links(router: InProcessRouter, identity: str) -> list[tuple[str, str]]:
    rows = router.query("processes")["processes"]
    return sorted((row["queue_type"], row["role"]) for row in rows if row["identity"] == identity)


def only_at(routers: Routers, identity: str, expected: list[tuple[str, str]]) -> int:
    """Wait until the process has the links ``expected`` at one router, and none at the others; return which."""

    def found() -> list[int]:
        seen = [links(router, identity) for router in routers]
        assert sorted(filter(None, seen)) == [expected], seen
        return [next(number for number, each in enumerate(seen) if each)]

    return eventually(found)[0]


def test_a_service_with_several_urls_is_at_one_router_over_one_link(
    routers: Routers, stack: ExitStack, client_shell: Any
) -> None:
    urls = ",".join(router.url for router in routers)
    service = Service("compute", Echo(), router=urls, host="n", identity="node", shell=client_shell)
    stack.callback(service.stop, 5.0)
    service.start()
    where = only_at(routers, "node", [("roundrobin", "process")])
    with Client(routers[where].url, shell=client_shell) as client:
        assert client.call(None, "compute", message("echo", value=5), 20) == 5


def test_a_subscriber_with_several_urls_is_at_one_router(routers: Routers, stack: ExitStack, client_shell: Any) -> None:
    client = Client([router.url for router in routers], identity="listener", shell=client_shell)
    stack.callback(client.close)
    heard: list[Any] = []
    client.subscribe("news.#", lambda ctx, topic, payload: heard.append(payload))
    client.subscribe("more.#", lambda ctx, topic, payload: heard.append(payload))
    where = only_at(routers, "listener", [("pubsub", "process")])
    with Client(routers[where].url, shell=client_shell) as publisher:
        assert publisher.publish(None, "news.x", 1, confirm=True) == 1
        assert publisher.publish(None, "more.x", 2, confirm=True) == 1
    eventually(lambda: sorted(heard) == [1, 2])


def test_a_service_of_an_event_loop_is_at_one_router(routers: Routers) -> None:
    urls = [router.url for router in routers]
    go_on = threading.Event()

    async def main() -> Any:
        # All clients of a program begin at the same router.
        async with rpcmq.aio.Service("compute", Echo(), router=urls, host="n", identity="node"):
            async with rpcmq.aio.Client(urls) as client:
                answer = await client.call(None, "compute", message("echo", value=5), 20)
            await asyncio.to_thread(go_on.wait, 20)
            return answer

    run = gevent.spawn(from_threads.in_thread, asyncio.run, main())
    try:
        only_at(routers, "node", [("roundrobin", "process")])
    finally:
        go_on.set()
    assert run.get(timeout=20) == 5


def test_a_process_goes_on_at_a_router_that_it_was_never_given(
    routers: Routers, stack: ExitStack, client_shell: Any
) -> None:
    one, two = routers
    service = Service("compute", Echo(), router=one.url, host="n", identity="node", shell=client_shell)
    stack.callback(service.stop, 5.0)
    service.start()
    client = stack.enter_context(Client(one.url, identity="caller", shell=client_shell))
    assert client.call(None, "compute", message("echo", value=1), 20) == 1
    origin = client.process.uplink.origin
    one._embedded.close()
    eventually(lambda: links(two, "node") and links(two, "caller"))
    assert client.call(None, "compute", message("echo", value=2), 20) == 2
    assert client.process.uplink.origin == origin
    assert client.process.uplink.moves.count == 1


class Work:
    """Counts how often each call was started."""

    def __init__(self) -> None:
        self.started: Counter[int] = Counter()
        self.go_on = threading.Event()

    def work(self, ctx: Any, number: int) -> int:
        self.started[number] += 1
        self.go_on.wait(20)
        return number


@pytest.mark.parametrize("places", [(0, 0), (0, 1), (1, 0)], ids=["both", "caller", "service"])
def test_calls_that_must_not_start_twice_outlive_the_router_that_they_were_at(
    stack: ExitStack, places: tuple[int, int]
) -> None:
    """Of the caller and the service, those at router 0 lose it."""
    work = Work()
    stack.callback(work.go_on.set)
    routers = stack.enter_context(testing.routers(2, link_heartbeat_seconds=0.1))
    caller, server = (routers[place].url for place in places)
    service = Service("compute", work, router=server, host="n", identity="node", shell="threads", concurrency=8)
    stack.callback(service.stop, 5.0)
    service.start()
    client = stack.enter_context(Client(caller, identity="caller", shell="threads"))
    results: list[Any] = []

    def call(number: int) -> None:
        results.append(client.call(None, "compute", message("work", number=number), 20))

    calls = [gevent.spawn(from_threads.in_thread, call, number) for number in range(5)]
    eventually(lambda: len(work.started) == 5)
    routers[0]._embedded.close()
    eventually(lambda: links(routers[1], "node") and links(routers[1], "caller"))
    work.go_on.set()
    gevent.joinall(calls, timeout=20, raise_error=True)
    assert sorted(results) == list(range(5))
    assert set(work.started.values()) == {1}
    # Once the caller has said that it has them, they are kept no longer.
    eventually(lambda: service.client.statistics()["answers_kept"] == 0)


# --- routers that become a mesh --------------------------------------------------------------


@pytest.fixture
def strangers() -> Iterator[Routers]:
    """Two routers that are not linked to each other."""
    with testing.router(router_id=1, router_name="a") as one, testing.router(router_id=2, router_name="b") as two:
        yield one, two


def become_a_mesh(routers: Routers) -> None:
    with Client(routers[0].url, shell="gevent") as operator:
        operator.join_mesh(routers[1].url)


def test_a_service_goes_over_to_one_router_when_they_become_a_mesh(strangers: Routers, stack: ExitStack) -> None:
    work = Work()
    stack.callback(work.go_on.set)
    urls = [router.url for router in strangers]
    service = Service(
        "compute", work, router=urls, host="n", identity="node", shell="threads", concurrency=8, drain_seconds=20.0
    )
    stack.callback(service.stop, 5.0)
    service.start()
    assert [links(router, "node") for router in strangers] == [[("roundrobin", "consumer")]] * 2
    results: list[Any] = []

    def call(number: int) -> None:
        with Client(urls[number], shell="threads") as client:
            results.append(client.call(None, "compute", message("work", number=number), 20))

    calls = [gevent.spawn(from_threads.in_thread, call, number) for number in range(2)]
    eventually(lambda: len(work.started) == 2)
    become_a_mesh(strangers)
    eventually(lambda: ("roundrobin", "process") in [*links(strangers[0], "node"), *links(strangers[1], "node")])
    work.go_on.set()
    gevent.joinall(calls, timeout=20, raise_error=True)
    assert sorted(results) == [0, 1], "what ran is answered where it came from"
    only_at(strangers, "node", [("roundrobin", "process")])
    for url in urls:
        with Client(url, shell="threads") as client:
            assert client.call(None, "compute", message("work", number=7), 20) == 7
    assert service.stop(20)


@pytest.mark.parametrize("is_first", [True, False], ids=["from the beginning", "later"])
def test_a_service_stays_at_a_router_that_is_not_in_the_mesh_of_its_other_one(
    strangers: Routers, stack: ExitStack, is_first: bool, client_shell: Any
) -> None:
    """One of an older version, say, while the others are updated."""
    other, outside = strangers
    third = stack.enter_context(testing.router(router_id=3, router_name="c"))
    if is_first:
        become_a_mesh((other, third))
    urls = [other.url, outside.url]
    service = Service("compute", Echo(), router=urls, host="n", identity="node", shell=client_shell)
    stack.callback(service.stop, 5.0)
    service.start()
    if not is_first:
        become_a_mesh((other, third))
        # When the process has been told, too.
        eventually(lambda: len(links(other, "node")) == 1 and len(other.query("mesh")["routers"]) == 1)
    for url in (*urls, third.url):
        with Client(url, shell=client_shell) as client:
            assert client.call(None, "compute", message("echo", value=5), 20) == 5
    assert links(outside, "node") == [("roundrobin", "consumer")]


@pytest.mark.parametrize("turn", [0, 1])
def test_a_process_that_calls_at_a_router_outside_the_mesh_is_not_in_it(
    strangers: Routers, stack: ExitStack, turn: int, client_shell: Any
) -> None:
    third = stack.enter_context(testing.router(router_id=3, router_name="c"))
    become_a_mesh((strangers[0], third))
    urls = [strangers[turn].url, strangers[1 - turn].url]
    service = Service("compute", Echo(), router=urls, host="n", identity="node", shell=client_shell)
    stack.callback(service.stop, 5.0)
    service.client.connect()
    calls_outside = bool(links(strangers[1], "node"))
    with gevent.Timeout(15):
        service.start(30)
    # In one of the two turns: a process begins at either, by its name and pid.
    if calls_outside:
        assert [links(router, "node")[0] for router in strangers] == [("roundrobin", "consumer")] * 2


def test_a_subscriber_goes_over_to_one_router_when_they_become_a_mesh(
    strangers: Routers, stack: ExitStack, client_shell: Any
) -> None:
    client = Client([router.url for router in strangers], identity="listener", shell=client_shell)
    stack.callback(client.close)
    heard: list[Any] = []
    first = client.subscribe("news.#", lambda ctx, topic, payload: heard.append(payload))
    publisher = stack.enter_context(Client(strangers[0].url, shell=client_shell))
    published = 0

    def publish() -> bool:
        nonlocal published
        publisher.publish(None, "news.x", published, confirm=True)
        published += 1
        return published > 5

    eventually(publish)
    become_a_mesh(strangers)
    only_at(strangers, "listener", [("pubsub", "process")])
    eventually(lambda: publish() and published > 20)
    client.subscribe("more.#", lambda ctx, topic, payload: heard.append(payload))
    publisher.publish(None, "more.x", "more", confirm=True)
    eventually(lambda: "more" in heard)
    assert heard == [*range(published), "more"], "each once, in order"
    first.close()
    publisher.publish(None, "news.x", "late", confirm=True)
    publisher.publish(None, "more.x", "end", confirm=True)
    eventually(lambda: heard[-1] == "end")
    assert "late" not in heard


@pytest.mark.integration
@pytest.mark.fault
def test_a_service_goes_back_to_the_router_of_its_domain_when_that_has_been_started_again(stack: ExitStack) -> None:
    mesh = stack.enter_context(RouterMesh(2, mesh_domains="volume.#"))
    home, other = mesh["a"], mesh["b"]
    service = Service("volume", Echo(), router=home.url, host="n", identity="keeper")
    stack.callback(service.stop, 5.0)
    service.start()
    client = stack.enter_context(Client(other.url, connect_timeout=20))
    assert client.call(None, "volume", message("echo", value=1), 20) == 1
    home.kill()
    eventually(lambda: any(row["identity"] == "keeper" for row in other.view("processes")["processes"]))
    home.restart()
    assert client.call(None, "volume", message("echo", value=2), 30) == 2


class Counting:
    def __init__(self) -> None:
        self.started: Counter[int] = Counter()

    def once(self, ctx: Any, number: int) -> int:
        self.started[number] += 1
        return number


def test_processes_spread_over_the_routers_without_a_failed_or_doubled_call(
    stack: ExitStack, client_shell: Any
) -> None:
    routers = tuple(stack.enter_context(testing.routers(3, mesh_rebalance_seconds=1.0)))
    urls = [router.url for router in routers]
    counting = Counting()
    names = ["node", "one", "two", "three", "four", "five"]
    service = Service("compute", counting, router=urls, host="n", identity="node", shell=client_shell)
    stack.callback(service.stop, 5.0)
    service.start()
    clients = [stack.enter_context(Client(urls, identity=name, shell=client_shell)) for name in names[1:]]
    numbers = iter(range(1_000_000))
    asked: set[int] = set()

    def call_at_each() -> list[int]:
        for client in clients:
            asked.add(number := next(numbers))
            assert client.call(None, "compute", message("once", number=number), 20) == number
        rows = [router.query("processes")["processes"] for router in routers]
        return [sum(row["identity"] in names and row["state"] != "away" for row in each) for each in rows]

    eventually(lambda: call_at_each() == [2, 2, 2], 60)
    assert counting.started == Counter(asked)
