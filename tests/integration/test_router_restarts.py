"""A router that is stopped in order and started again loses nothing, and one that is killed as little as can be."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.errors import LinkLost
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.integration.cluster import consumers, counts, message, node, program

pytestmark = [pytest.mark.integration, pytest.mark.fault]

#: The figures in docs/guarantees.md are those of 12.
RESTARTS = int(os.environ.get("PLANNED_RESTARTS", "2"))


def restart(router: RouterProcess) -> None:
    router.signal(signal.SIGTERM)
    assert router.wait(60) == 0, router.said()
    router.restart()


def calls_so_far(caller: Program) -> int:
    caller.tell("count")
    return int(caller.expect(r"count (\d+)")[1])


def has_called(caller: Program, number: int) -> bool:
    gevent.sleep(0.1)
    return calls_so_far(caller) > number


def casts_run(client: Client, nodes: int) -> int:
    return sum(sum(counts(client, f"node-{n}").values()) for n in range(nodes))


@pytest.mark.long
def test_planned_restarts_under_load_fail_no_call_and_lose_no_cast():
    with ExitStack() as stack:
        router = stack.enter_context(RouterProcess())
        for n in range(3):
            stack.enter_context(node(router.url, f"node-{n}"))
        stack.enter_context(program("asker", router.url)).expect("serving")
        callers = [stack.enter_context(program("hammer", router.url, 40, "asker")) for _ in range(2)]
        for caller in callers:
            caller.expect("started")
        for _ in range(RESTARTS):
            for caller in callers:
                eventually(partial(has_called, caller, calls_so_far(caller) + 1000), 60)
            restart(router)
        calls = casts = 0
        for caller in callers:
            caller.tell("stop")
            ended = caller.expect(r"ended (\d+) (\d+) (\d+) (\d+)", 120)
            assert int(ended[2]) == 0, caller.said()
            assert caller.wait() == 0
            calls, casts = calls + int(ended[1]), casts + int(ended[3])
        print(f"\n{RESTARTS} restarts, {calls} calls, {casts} casts")
        with Client(router.url) as client:
            eventually(lambda: casts_run(client, 3) == casts, 30)


def test_a_call_that_takes_longer_than_the_drain_is_told_so_and_all_others_go_on():
    with ExitStack() as stack:
        router = stack.enter_context(RouterProcess(router_drain_seconds=1, router_recovery_seconds=1))
        stack.enter_context(node(router.url))
        client, other = (stack.enter_context(Client(router.url)) for _ in range(2))
        events: list[Any] = []
        client.subscribe("a", lambda ctx, topic, payload: events.append(payload))
        assert other.publish(None, "a", "before", confirm=True) == 1
        long = gevent.spawn(client.call, None, "compute", message("run", key="long", seconds=30), timeout=60)
        eventually(lambda: counts(other).get("long") == 1)
        router.signal(signal.SIGTERM)
        router.expect("draining, accepting nothing new")
        eventually(lambda: not other.process.connection.connected or other.process.uplink.state.value == "draining")
        later = gevent.spawn(other.call, None, "compute", message("run", key="later"), timeout=60)
        other.cast(None, "compute", message("run", key="cast"))
        other.publish(None, "a", "event")
        with pytest.raises(LinkLost, match=r"drain timed out \(router.drain_seconds\).*it may have run") as told:
            long.get(timeout=20)
        assert told.value.details["server"] == "node-1"
        assert router.wait() == 0
        router.restart()
        assert later.get(timeout=30) == "later"
        eventually(lambda: counts(other) == {"long": 1, "later": 1, "cast": 1}, 30)
        eventually(lambda: events == ["before", "event"], 30)
        assert set(consumers(other)) == {"node-1"}


def got(subscriber: Program) -> tuple[int, int]:
    gevent.sleep(0.2)
    subscriber.tell("?")
    found = subscriber.expect(r"got (\d+) doubled (\d+)")
    return int(found[1]), int(found[2])


def has_got(subscriber: Program, number: int) -> bool:
    return got(subscriber)[0] >= number


@pytest.mark.long
def test_a_router_that_is_killed_costs_few_events_and_doubles_no_cast():
    with ExitStack() as stack:
        router = stack.enter_context(RouterProcess(router_recovery_seconds=1.5))
        nodes = [stack.enter_context(node(router.url, f"node-{n}")) for n in range(3)]
        subscribers = [stack.enter_context(program("subscriber", router.url, "a.#")) for _ in range(3)]
        for subscriber in subscribers:
            subscriber.expect("subscribed")
        publisher = stack.enter_context(program("publisher", router.url))
        publisher.expect("started")
        for _ in range(RESTARTS):
            # What was held after the last restart has been passed on: it would be lost with this router.
            eventually(lambda: router.varz()["uptime_seconds"] > 3.0, 60)
            before = got(subscribers[0])[0]
            eventually(partial(has_got, subscribers[0], before + 1000), 60)
            router.kill()
            gevent.sleep(0.5)
            router.restart()
        publisher.tell("stop")
        sent = publisher.expect(r"sent (\d+) (\d+)", 60)
        events, casts = int(sent[1]), int(sent[2])
        # What was in the router's memory when it was killed: some milliseconds' worth, or a second's where the machine
        # held it up just then.
        most = 500 * RESTARTS
        for subscriber in subscribers:
            eventually(partial(has_got, subscriber, events - most), 30)
            assert got(subscriber)[1] == 0
        print(f"\n{RESTARTS} kills, {events} events: {[got(s) for s in subscribers]}, {casts} casts")
        with Client(router.url) as client:
            eventually(lambda: casts_run(client, len(nodes)) >= casts, 30)
            runs: Counter[object] = Counter()
            for n in range(len(nodes)):
                runs.update(counts(client, f"node-{n}"))
            assert [key for key, times in runs.items() if times > 1] == []


@pytest.mark.parametrize("verb", ["call", "publish"])
def test_who_connects_first_while_the_router_shuts_down_waits_for_its_next_life(caplog, verb):
    with ExitStack() as stack:
        router = stack.enter_context(RouterProcess())
        stack.enter_context(node(router.url, "node-1", 500))
        busy = stack.enter_context(Client(router.url, timeout=60, shell="gevent"))
        held = gevent.spawn(busy.call, None, "compute", message("run", key=1, seconds=1.5))
        eventually(lambda: busy.query("summary")["calls_in_flight"] == 1)
        router.signal(signal.SIGTERM)
        late = stack.enter_context(Client(router.url, timeout=40, shell="gevent", connect_timeout=0.3))
        ask: Callable[[], Any] = partial(late.call, None, "compute", message("run", key=2, seconds=0.0))
        if verb == "publish":
            ask = partial(late.publish, None, "a.b", 1, confirm=True)
        asked = gevent.spawn(ask)
        assert held.get(timeout=20) == 1
        assert router.wait(60) == 0
        router.restart()
        assert asked.get(timeout=40) == (2 if verb == "call" else 0)
        said = [record.getMessage() for record in caplog.records if "is shutting down" in record.getMessage()]
        # Each link of a process says it once.
        assert len(said) <= 4


def test_answers_that_a_busy_caller_has_not_read_when_the_router_has_gone_are_not_lost():
    with ExitStack() as stack:
        router = stack.enter_context(RouterProcess())
        stack.enter_context(node(router.url, "node-1", 500))
        client = stack.enter_context(Client(router.url, timeout=60, shell="gevent"))
        client.connect(20)
        # Each answer in a batch of its own, many more than are read in one turn.
        pauses = [0.5 + n / 200 for n in range(300)]
        calls = [
            gevent.spawn(client.call, None, "compute", message("run", key=n, seconds=pause))
            for n, pause in enumerate(pauses)
        ]
        # It has them all when it answers this, which was sent after them.
        gevent.sleep(0)
        client.query("summary")
        router.signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        # No greenlet of this process runs meanwhile: it computes.
        while _runs(router.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [call.get(timeout=20) for call in calls] == list(range(300))


def _runs(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
