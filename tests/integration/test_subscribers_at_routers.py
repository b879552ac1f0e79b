"""Subscribers with several routers: what is published at any of them reaches them, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest

import rpcmq.aio
from rpcmq import testing
from rpcmq.client import Client
from rpcmq.core.router.rights import Key
from rpcmq.errors import AccessDenied, RouterUnreachable, UsageError
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing.processes import RouterProcess
from rpcmq.transport.key_files import read_key_file
from tests import from_threads
from tests.from_threads import each_blocking_shell
from tests.integration.cluster import BRISK, Routers
from tests.keys import Folder, right

client_shell = each_blocking_shell


@pytest.fixture
def listen(client_shell: str) -> Iterator[Callable[..., Any]]:
    """Makes clients that listen at several routers."""
    with ExitStack() as stack:

        def listen(*urls: str, **settings: Any) -> Any:
            given: dict[str, Any] = {
                "shell": client_shell,
                "reconnect_max_seconds": 0.1,
                "connect_timeout": 5.0,
                **settings,
            }
            client = Client(list(urls), **given)
            stack.callback(client.close)
            return client

        yield listen


@pytest.fixture
def publishers(routers: Routers) -> Iterator[tuple[Client, Client]]:
    """A publisher at each router."""
    with Client(routers[0].url, shell="gevent") as one, Client(routers[1].url, shell="gevent") as two:
        yield one, two


def has_all(events: list[Any]) -> bool:
    return events.count("last") == 2


def heard(into: list[Any], ctx: Any, topic: str, payload: Any) -> None:
    into.append(payload)


def subscribers(router: InProcessRouter | RouterProcess) -> int:
    """The number of links that subscribe at ``router``."""
    with Client(router.url, shell="gevent") as client:
        return sum(bool(row.get("patterns")) for row in client.query("processes")["processes"])


def test_an_event_reaches_a_subscriber_once_whichever_router_it_is_published_at(routers, listen, publishers) -> None:
    urls = [router.url for router in routers]
    first, second, other = [], [], []  # type: list[Any], list[Any], list[Any]
    client = listen(*urls)
    subscription = client.subscribe("disk.#", partial(heard, first))
    listen(*urls).subscribe("disk.*", partial(heard, second))
    client.subscribe("net.#", partial(heard, other))
    for number in range(50):
        for at, publisher in enumerate(publishers):
            publisher.publish(None, "disk.x", (at, number))
    assert [publisher.publish(None, "disk.x", "last", confirm=True) for publisher in publishers] == [2, 2]
    for events in (first, second):
        eventually(partial(has_all, events))
        assert len(events) == 102
        for at in range(2):
            # In the order of their publisher.
            assert [event for event in events if event[0] == at] == [(at, number) for number in range(50)]
    assert other == [] and subscription.received == 102 and subscription.lost == 0
    subscription.close()
    eventually(lambda: [publisher.publish(None, "disk.x", 0, confirm=True) for publisher in publishers] == [1, 1])


def test_a_process_gets_its_own_events(routers, listen) -> None:
    events: list[Any] = []
    client = listen(*(router.url for router in routers), identity="node")
    client.subscribe("a", partial(heard, events))
    for number in range(20):
        client.publish(None, "a", number)
    eventually(lambda: events == [*range(20)])
    links = [
        (row["identity"], row["queue_type"], row["role"])
        for router in routers
        for row in router.query("processes")["processes"]
    ]
    assert sorted(links) == [("node", "pubsub", "consumer")] * 2 + [("node", "pubsub", "process")]


def test_losses_at_all_routers_are_counted_together(listen) -> None:
    with (
        testing.router(pubsub_max_messages=10) as one,
        testing.router(pubsub_max_messages=10) as two,
        Client(one.url, shell="gevent") as first,
        Client(two.url, shell="gevent") as second,
    ):
        go_on = from_threads.new_event()
        client = listen(one.url, two.url)
        subscription = client.subscribe("a", lambda *event: go_on.wait() and None, window=5)
        for publisher in (first, second):
            for number in range(40):
                publisher.publish(None, "a", number, confirm=True)
        go_on.set()
        # Of 40 at each router 5 are on their way and 10 wait there.
        eventually(lambda: subscription.lost == 50 and subscription.received == 30)


def test_aio_subscribers_listen_at_all_routers(routers, publishers) -> None:
    urls = [router.url for router in routers]
    events: list[Any] = []

    async def handler(ctx: Any, topic: str, payload: Any) -> None:
        events.append(payload)

    async def main() -> None:
        async with rpcmq.aio.Client(urls) as client:
            subscription = await client.subscribe("a", handler)
            ready.set()
            while len(events) < 2:
                await asyncio.sleep(0.01)
            await subscription.close()

    ready = from_threads.Event()
    runs = gevent.spawn(from_threads.in_thread, asyncio.run, main())
    assert ready.wait()
    assert [publisher.publish(None, "a", at, confirm=True) for at, publisher in enumerate(publishers)] == [1, 1]
    runs.get(timeout=20)
    assert sorted(events) == [0, 1]


def test_a_router_that_is_killed_stops_no_events_of_another_and_is_listened_to_when_it_is_back(listen) -> None:
    with RouterProcess(**BRISK) as one, RouterProcess(**BRISK) as two:
        events: list[Any] = []
        listen(one.url, two.url).subscribe("a", partial(heard, events))
        with Client(one.url, shell="gevent") as steady, Client(two.url, shell="gevent") as hit:
            assert steady.publish(None, "a", "s0", confirm=True) == hit.publish(None, "a", "h0", confirm=True) == 1
            eventually(lambda: "h0" in events)  # confirmed, it may still be on its way
            two.kill()
            assert [steady.publish(None, "a", f"s{n}", confirm=True) for n in range(1, 20)] == [1] * 19
            two.restart()
            eventually(lambda: subscribers(two) == 1)
            assert hit.publish(None, "a", "h1", confirm=True) == 1
            eventually(lambda: "s19" in events and "h1" in events)
            assert [event for event in events if event[0] == "s"] == [f"s{n}" for n in range(20)]
            assert [event for event in events if event[0] == "h"] == ["h0", "h1"]


def test_publishers_go_on_at_another_router_and_the_same_subscribers_hear_them(listen) -> None:
    with RouterProcess(**BRISK) as one, RouterProcess(**BRISK) as two:
        events: list[Any] = []
        listen(one.url, two.url).subscribe("a", partial(heard, events))
        with Client([one.url, two.url], shell="gevent", reconnect_max_seconds=0.1) as publisher:
            assert publisher.publish(None, "a", 0, confirm=True) == 1
            eventually(lambda: events == [0])
            used = next(r for r in (one, two) if r.url == publisher.event_link().connection.url)
            used.kill()
            for number in range(1, 50):
                publisher.publish(None, "a", number)
            assert publisher.publish(None, "a", 50, confirm=True) == 1
            eventually(lambda: 50 in events)
            assert events == [*range(51)]


def test_subscribe_returns_with_one_router_and_listens_at_the_other_when_it_is_there(caplog) -> None:
    with RouterProcess(**BRISK) as one, RouterProcess(**BRISK) as two, ExitStack() as stack:
        two.kill()
        events: list[Any] = []
        client = stack.enter_context(Client([one.url, two.url], shell="gevent", reconnect_max_seconds=0.1))
        client.subscribe("a", partial(heard, events))
        closed = client.subscribe("b", partial(heard, events))
        closed.close()
        assert f"no events for a come from the router {two.url}: nothing listens there" in caplog.text
        two.restart()
        with Client(two.url, shell="gevent") as publisher:
            eventually(lambda: publisher.publish(None, "a", 1, confirm=True) == 1, 30)
            assert publisher.publish(None, "b", 2, confirm=True) == 0
        eventually(lambda: 1 in events)
        one.kill()
        two.kill()
    with (
        Client([one.url, two.url], shell="gevent", connect_timeout=0.3) as client,
        pytest.raises(RouterUnreachable, match="nothing listens there; tcp:"),
    ):
        client.subscribe("a", print)


def test_a_router_that_refuses_the_pattern_is_logged_and_one_that_takes_it_is_enough(tmp_path: Path, caplog) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = Folder(tmp_path / "one"), Folder(tmp_path / "two")
    (second.path / "router.key").write_bytes((first.path / "router.key").read_bytes())
    key_file = first.add("watch")
    second.authorise(Key("watch", read_key_file(Path(key_file), client=True).public, (right("call", "#"),)))
    with testing.router(security_keys=str(first)) as one, testing.router(security_keys=str(second)) as two:
        events: list[Any] = []
        with Client([one.url, two.url], key_file=key_file, shell="gevent") as client:
            client.subscribe("a", partial(heard, events))
            assert f"no events for a come from the router {two.url}: " in caplog.text
            assert client.event_link().connection.url in (one.url, two.url)
        with (
            Client(two.url, key_file=key_file, shell="gevent") as denied,
            pytest.raises(AccessDenied),
        ):
            denied.subscribe("a", print)


def test_wrong_subscriptions_are_refused_before_anything_is_asked(routers, listen) -> None:
    client = listen(*(router.url for router in routers))
    for arguments in ((7, print), ("a..b", print), ("a", print, 0)):
        with pytest.raises(UsageError):
            client.subscribe(*arguments[:2], **dict(zip(["window"], arguments[2:], strict=False)))
    assert [subscribers(router) for router in routers] == [0, 0]
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.subscribe("a", print)
