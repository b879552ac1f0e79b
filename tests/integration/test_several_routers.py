"""Callers that have several routers: they use one, and go on at the next when it is killed, drains or falls silent."""

from __future__ import annotations

import logging
import signal
from typing import Any

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.errors import LinkLost, RouterUnreachable
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import BRISK, consumers, counts, message, node


def pair(client: Client, *routers: RouterProcess) -> tuple[RouterProcess, RouterProcess]:
    """Return the router of ``routers`` that ``client`` is connected to, and the other one."""
    client.connect(20)
    here = next(router for router in routers if router.url == client.process.connection.url)
    return here, next(router for router in routers if router is not here)


def call(client: Client, method: str, timeout: float = 20.0, /, retry: int = 0, **args: Any) -> Any:
    return client.call(None, "compute", message(method, **args), timeout, retry=retry)


def test_a_caller_goes_on_at_the_next_router_when_its_own_is_killed_during_calls(caplog) -> None:
    caplog.set_level(logging.WARNING, "rpcmq.client")
    with (
        RouterProcess(**BRISK) as one,
        RouterProcess(**BRISK) as two,
        node(one.url, "at-one"),
        node(two.url, "at-two"),
        Client([one.url, two.url], reconnect_max_seconds=0.2) as client,
    ):
        first, second = pair(client, one, two)
        assert call(client, "where") == ("at-one" if first is one else "at-two")
        running = gevent.spawn(call, client, "wait")
        again = gevent.spawn(call, client, "run", retry=1, key="again", seconds=0.5)
        eventually(lambda: sum(row["in_flight"] for row in consumers(client).values()) == 2)
        first.kill()
        with pytest.raises(LinkLost, match="it may have run") as told:
            running.get(timeout=20)
        assert told.value.details["started"] == "unknown"
        assert again.get(timeout=20) == "again"
        for _ in range(20):
            assert call(client, "where") == ("at-two" if first is one else "at-one")
        connection = client.process.connection
        assert connection.url == second.url and connection.reconnects == 1
        assert f"now at the router {second.url}; left {first.url}: " in caplog.text
        # Nothing leads back while the present router lives.
        first.restart()
        assert call(client, "where") == ("at-two" if first is one else "at-one")
        second.kill()
        eventually(lambda: connection.url == first.url and connection.connected)


def test_casts_go_on_at_the_next_router_and_none_runs_twice() -> None:
    with (
        RouterProcess(**BRISK) as one,
        RouterProcess(**BRISK) as two,
        node(one.url, "at-one"),
        node(two.url, "at-two"),
        Client([one.url, two.url], reconnect_max_seconds=0.2) as client,
    ):
        first, second = pair(client, one, two)
        for key in range(100):
            client.cast(None, "compute", message("run", key=key))
        there = "at-one" if first is one else "at-two"
        eventually(lambda: len(counts(client, there)) == 100)
        eventually(lambda: client.process.casts.open == 0 and not client.process.casts.retained)
        client.cast(None, "unserved", message("run"))
        eventually(lambda: client.process.casts.open == 0)
        first.pause()
        first.kill()
        for key in range(100, 200):
            client.cast(None, "compute", message("run", key=key))
        here = "at-two" if first is one else "at-one"
        eventually(lambda: client.process.connection.url == second.url and len(counts(client, here)) == 100)
        assert counts(client, here) == dict.fromkeys(range(100, 200), 1), "the former router had the others"
        assert client.statistics()["casts_left_behind"] == 1, "the one that nobody served"


def test_a_drain_moves_callers_to_the_next_router_without_a_failed_call() -> None:
    with (
        RouterProcess(**BRISK) as one,
        RouterProcess(**BRISK) as two,
        node(one.url, "at-one"),
        node(two.url, "at-two"),
        Client([one.url, two.url], reconnect_max_seconds=0.2) as client,
    ):
        first, second = pair(client, one, two)
        ended: list[Any] = []

        def calls(caller: int) -> None:
            for number in range(1000):
                key = f"{caller}/{number}"
                assert call(client, "run", key=key, seconds=0.02) == key
                ended.append(key)
                if client.process.connection.url == second.url and number > 20:
                    return

        callers = [gevent.spawn(calls, caller) for caller in range(8)]
        eventually(lambda: len(ended) > 40)
        client.cast(None, "unserved", message("run"))
        eventually(lambda: client.process.casts.open == 0)
        first.signal(signal.SIGTERM)
        for caller in callers:
            caller.get(timeout=60)
        assert first.wait() == 0
        assert client.process.connection.url == second.url
        runs = counts(client, "at-two" if first is one else "at-one")
        assert 0 < len(runs) < len(ended) and set(runs.values()) == {1}
        waiting = {row["topic"]: row["queued"] for row in client.query("topics")["topics"]}
        assert waiting["unserved"] == 1, "what nobody had begun comes along"


def test_a_silent_router_is_left_and_idempotent_calls_go_on() -> None:
    with (
        RouterProcess(link_lost_seconds=2.5, **BRISK) as one,
        RouterProcess(link_lost_seconds=2.5, **BRISK) as two,
        node(one.url, "at-one"),
        node(two.url, "at-two"),
        Client([one.url, two.url], reconnect_max_seconds=0.2) as client,
    ):
        first, second = pair(client, one, two)
        first.pause()
        assert call(client, "where", 40, retry=3) == ("at-two" if first is one else "at-one")
        assert client.process.connection.url == second.url
        first.resume()


def test_an_error_names_all_routers_and_why_each_was_left() -> None:
    with RouterProcess(**BRISK, link_max_links=1) as full, Client(full.url) as other:
        other.connect(20)
        routers = ["tcp://127.0.0.1:1", full.url]
        with Client(routers, reconnect_max_seconds=0.05) as client:
            text = rf"^no router reachable within 1 s: {routers[0]}: nothing listens there; {routers[1]}: link limit"
            with pytest.raises(RouterUnreachable, match=text):
                client.connect(1.0)


def test_processes_begin_at_different_routers_and_all_clients_of_one_at_the_same(monkeypatch) -> None:
    routers = [f"tcp://127.0.0.1:{port}" for port in (1, 2, 3)]

    def begins_at() -> set[str]:
        clients = [Client(routers) for _ in range(3)]
        found = {client.process.connection.url for client in clients}
        for client in clients:
            client.close()
        return found

    begun = []
    for pid in range(1, 40):
        # As after a fork: which router is first depends on host and process.
        monkeypatch.setattr("rpcmq.transport.connection.getpid", lambda pid=pid: pid)
        begun.append(begins_at())
    assert all(len(found) == 1 for found in begun)
    assert set.union(*begun) == set(routers)
