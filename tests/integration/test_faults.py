"""Errors of callers, and numbers of runs, when processes and connections die."""

from __future__ import annotations

import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import pytest

from rpcmq.client import Client
from rpcmq.errors import CallError, CallTimeout, LinkLost, NoConsumer
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import QUICK, Proxy, consumers, counts, explained, message, node, program
from tests.latency.logs import rows, ship

pytestmark = [pytest.mark.integration, pytest.mark.fault]


def has_run(client: Client, key: object) -> bool:
    """Return whether the node has begun to run ``key``, once."""
    return counts(client).get(key) == 1


# --- a service dies -----------------------------------------------------------------------------


def test_the_caller_of_a_killed_service_is_told_so():
    with RouterProcess() as router, node(router.url) as served, Client(router.url) as client:
        call = gevent.spawn(client.call, None, "compute", message("run", key=1, seconds=60), timeout=60)
        eventually(lambda: counts(client) == {1: 1})
        served.kill()
        with pytest.raises(LinkLost, match=r"node-1 went away .* it may have run") as raised:
            call.get(timeout=20)
        assert raised.value.details["server"] == "node-1"
        late = explained(CallTimeout, client.call, None, "compute", message("add", a=1), timeout=0.3)
        assert re.search(r"no consumer on 'compute' \(last seen \d+ s ago\)", str(late))


def test_a_mandatory_call_that_waits_for_a_service_that_is_killed_finds_no_consumer():
    with RouterProcess() as router, node(router.url, "node-1", 1) as served, Client(router.url) as client:
        running = gevent.spawn(client.call, None, "compute", message("run", key=1, seconds=60), timeout=60)
        eventually(lambda: consumers(client)["node-1"]["in_flight"] == 1)
        waiting = gevent.spawn(client.call, None, "compute", message("run", key=2), timeout=60, mandatory=True)
        eventually(lambda: [row["queued"] for row in client.query("topics")["topics"]] == [1])
        served.kill()
        with pytest.raises(NoConsumer, match=r"no consumer on 'compute' \(last seen \d+ s ago\)"):
            waiting.get(timeout=20)
        with pytest.raises(LinkLost):
            running.get(timeout=20)


def test_an_idempotent_call_to_a_killed_service_goes_to_another():
    with (
        RouterProcess() as router,
        Client(router.url) as client,
        node(router.url, "node-1") as first,
        node(router.url, "node-2") as second,
    ):
        victims = {"node-1": first, "node-2": second}
        call = gevent.spawn(
            client.call, None, "compute", message("run", key="k", seconds=2), timeout=60, idempotent=True
        )
        eventually(lambda: any(row["in_flight"] for row in consumers(client).values()))
        (had,) = [name for name, row in consumers(client).items() if row["in_flight"]]
        victims.pop(had).kill()
        (other,) = victims
        assert call.get(timeout=20) == "k"
        assert counts(client, other) == {"k": 1}


def test_what_a_killed_service_had_not_started_goes_to_another():
    with RouterProcess() as router, Client(router.url) as client:
        with node(router.url, "node-1", 1) as first:
            running = gevent.spawn(client.call, None, "compute", message("run", key=0, seconds=60), timeout=60)
            eventually(lambda: consumers(client)["node-1"]["in_flight"] == 1)
            calls = [gevent.spawn(client.call, None, "compute", message("run", key=n), timeout=60) for n in (1, 2, 3)]
            for n in (4, 5, 6):
                client.cast(None, "compute", message("run", key=n), confirm=True)
            first.kill()
        with pytest.raises(LinkLost):
            running.get(timeout=20)
        with node(router.url, "node-2"):
            gevent.joinall(calls, 20)
            assert [c.value for c in calls] == [1, 2, 3]
            eventually(lambda: counts(client, "node-2") == dict.fromkeys(range(1, 7), 1))


def test_a_service_that_comes_back_takes_its_identity_and_its_mailbox():
    with RouterProcess() as router, Client(router.url) as client, node(router.url) as served:
        served.kill()
        client.cast(None, "compute.node-1", message("run", key="kept"), confirm=True)
        served.restart()
        served.expect("serving")
        eventually(lambda: counts(client) == {"kept": 1})
        assert list(consumers(client)) == ["node-1"]


def test_sigterm_lets_what_runs_finish():
    with RouterProcess() as router, Client(router.url) as client, node(router.url) as served:
        call = gevent.spawn(client.call, None, "compute", message("run", key=1, seconds=0.5), timeout=30)
        eventually(lambda: counts(client) == {1: 1})
        served.signal(signal.SIGTERM)
        assert call.get(timeout=20) == 1
        served.expect("stopped")
        assert served.wait() == 0
        assert consumers(client) == {}


# --- a service stops answering ------------------------------------------------------------------


def test_a_stopped_service_is_unresponsive_and_not_dead():
    with (
        RouterProcess(**QUICK) as router,
        Client(router.url) as client,
        node(router.url, "node-1") as stopped,
        node(router.url, "node-2"),
    ):
        held = gevent.spawn(client.call, None, "compute.node-1", message("run", key="held", seconds=2), timeout=60)
        eventually(lambda: consumers(client)["node-1"]["in_flight"] == 1)
        stopped.pause()
        eventually(lambda: consumers(client)["node-1"]["state"] == "unresponsive")
        # No new work for it, and what it has stays with it.
        assert {client.call(None, "compute", message("where"), timeout=10) for _ in range(20)} == {"node-2"}
        assert not held.ready()
        late = explained(CallTimeout, client.call, None, "compute.node-1", message("where"), timeout=1.0)
        assert re.search(r"no consumer on 'compute.node-1' answers \(silent for \d+ s: node-1\)", str(late))
        queued = gevent.spawn(client.call, None, "compute.node-1", message("run", key="queued"), timeout=60)
        stopped.resume()
        assert held.get(timeout=20) == "held"
        assert queued.get(timeout=20) == "queued"
        eventually(lambda: consumers(client)["node-1"]["state"] == "answering")
        assert counts(client) == {"held": 1, "queued": 1}
        eventually(lambda: {client.call(None, "compute", message("where")) for _ in range(20)} == {"node-1", "node-2"})


def test_a_service_that_is_stopped_for_too_long_is_lost():
    """As one whose host has vanished: its connection stands, and nothing comes."""
    with (
        RouterProcess(**QUICK | {"link_lost_seconds": 3}) as router,
        Client(router.url) as client,
        node(router.url, "node-1") as stopped,
    ):
        held = gevent.spawn(client.call, None, "compute", message("run", key="held", seconds=2), timeout=60)
        again = gevent.spawn(
            client.call, None, "compute", message("run", key="again", seconds=2), timeout=60, idempotent=True
        )
        eventually(lambda: consumers(client)["node-1"]["in_flight"] == 2)
        stopped.pause()
        with node(router.url, "node-2"):
            with pytest.raises(LinkLost, match=r"node-1 went away"):
                held.get(timeout=20)
            assert again.get(timeout=20) == "again"
            assert counts(client, "node-2") == {"again": 1}


def test_a_router_that_was_stopped_hears_before_it_judges():
    # As long as a process may be silent here no machine holds it up.
    patient = QUICK | {"link_unresponsive_seconds": 4}
    with RouterProcess(**patient) as router, Client(router.url) as client, node(router.url):
        assert client.call(None, "compute", message("where"), timeout=20) == "node-1"
        router.pause()
        # How long it is stopped is the fault: longer than what makes a process unresponsive.
        gevent.sleep(5.0)
        router.resume()
        assert client.call(None, "compute", message("where"), timeout=20) == "node-1"
        eventually(lambda: router.view("processes")["processes"][0]["silent_seconds"] < 0.3)
        assert "unresponsive" not in router.said()


def test_a_timeout_while_the_service_does_not_answer_says_so():
    with RouterProcess(**QUICK) as router, Client(router.url) as client, node(router.url) as stopped:
        call = gevent.spawn(client.call, None, "compute", message("run", key=1, seconds=60), timeout=6)
        eventually(lambda: counts(client) == {1: 1})
        stopped.pause()
        with pytest.raises(CallTimeout, match=r"node-1 stopped answering heartbeats \d+ s ago") as raised:
            call.get(timeout=20)
        assert raised.value.details["state"] == "unresponsive"


def test_a_handler_that_hogs_its_process_is_not_declared_dead():
    with RouterProcess(**QUICK) as router, Client(router.url) as client, node(router.url):
        assert client.call(None, "compute", message("hog", seconds=2), timeout=30) == "node-1"
        assert client.call(None, "compute", message("health"), timeout=30) == {"lost_wakeups": 0, "reconnects": 0}


# --- the router dies ----------------------------------------------------------------------------


def test_after_a_restart_of_the_router_everybody_comes_back_by_himself():
    with RouterProcess() as router, Client(router.url) as client, node(router.url):
        events: list[Any] = []
        client.subscribe("a.#", lambda ctx, topic, payload: events.append(payload))
        for life in range(3):
            call = gevent.spawn(client.call, None, "compute", message("run", key=life, seconds=60), timeout=60)
            eventually(partial(has_run, client, life))
            router.kill()
            router.restart()
            with pytest.raises(LinkLost, match="the router went away with the call to 'compute' in flight"):
                call.get(timeout=20)
            assert client.call(None, "compute", message("add", a=life), timeout=20) == life
            client.publish(None, "a.b", life)
            eventually(partial(events.__contains__, life))
            assert events == list(range(life + 1))
        assert counts(client) == {0: 1, 1: 1, 2: 1}
        assert list(consumers(client)) == ["node-1"]
        assert router.varz()["links"] == 3


def test_an_idempotent_call_survives_a_restart_of_the_router():
    with RouterProcess() as router, Client(router.url) as client, node(router.url):
        call = gevent.spawn(
            client.call, None, "compute", message("run", key="k", seconds=1), timeout=60, idempotent=True
        )
        eventually(lambda: counts(client) == {"k": 1})
        router.kill()
        router.restart()
        assert call.get(timeout=30) == "k"
        assert counts(client) == {"k": 2}


def test_casts_are_neither_lost_nor_doubled_by_restarts_of_the_router():
    count = 8000
    with RouterProcess(router_recovery_seconds=1) as router, Client(router.url) as client, node(router.url):
        client.connect()
        # Slower than the consumer, so that nothing waits in the router when it is killed.
        with program("caster", router.url, count, 200, 0.005) as caster:
            for after in (1000, 4000):
                caster.expect(f"sent {after}")
                router.kill()
                router.restart()
            caster.expect("closed 0", 60)
            assert caster.wait() == 0, caster.said()
        eventually(lambda: is_idle(client), 20)
        runs = Counter(counts(client).values())
        assert set(runs) == {1}
        # What the router had taken and not yet passed on when it was killed is gone with it. (It passes
        # on nothing of one who repeats casts in the first second of its life, so it lives longer here.)
        assert runs[1] >= count - 2 * 64
        ordered = client.call(None, "compute", message("ordered"), 20)
        assert ordered == sorted(ordered)


def is_idle(client: Client) -> bool:
    """There is a consumer, and nothing waits or runs."""
    rows = [row for row in client.query("topics")["topics"] if row["topic"] == "compute"]
    return bool(rows and rows[0]["consumers"] and not rows[0]["queued"] and not rows[0]["in_flight"])


@pytest.mark.parametrize("end", ["kill", "drain"])
def test_casts_that_wait_for_a_consumer_come_back_with_their_sender(end: str):
    with RouterProcess(router_recovery_seconds=1.0) as router, Client(router.url) as client:
        for n in range(300):
            client.cast(None, "compute", message("run", key=n), confirm=n % 2 == 0)
        eventually(lambda: client.process.casts.open == 0)
        if end == "kill":
            router.kill()
        else:
            router.signal(signal.SIGTERM)
            assert router.wait() == 0
        router.restart()
        with node(router.url):
            eventually(lambda: counts(client) == dict.fromkeys(range(300), 1), 30)
            eventually(lambda: not client.process.casts.retained)
            router.kill()
            router.restart()
            eventually(lambda: consumers(client), 30)
            # Nothing comes again when the recovery window is over.
            eventually(lambda: router.varz()["uptime_seconds"] > 1.5, 30)
            assert counts(client) == dict.fromkeys(range(300), 1)


def test_a_draining_router_lets_what_runs_finish_and_its_next_life_takes_the_rest():
    with RouterProcess() as router, Client(router.url) as client, node(router.url):
        running = gevent.spawn(client.call, None, "compute", message("run", key=1, seconds=0.7), timeout=60)
        eventually(lambda: counts(client) == {1: 1})
        router.signal(signal.SIGTERM)
        router.expect("draining, accepting nothing new")
        later = gevent.spawn(client.call, None, "compute", message("run", key=2), timeout=60)
        assert running.get(timeout=20) == 1
        assert router.wait() == 0
        router.restart()
        assert later.get(timeout=20) == 2
        assert counts(client) == {1: 1, 2: 1}


# --- connections break --------------------------------------------------------------------------


def test_a_broken_connection_is_resumed_and_nothing_happens_twice():
    with (
        # On a busy machine a reconnect takes longer than the usual half second.
        RouterProcess(link_consumer_grace_seconds=20) as router,
        Proxy(router.url) as proxy,
        node(proxy.url),
        Client(proxy.url) as client,
    ):
        events: list[Any] = []
        client.subscribe("a", lambda ctx, topic, payload: events.append(payload))
        for n in range(5):
            call = gevent.spawn(client.call, None, "compute", message("run", key=n, seconds=0.2), timeout=60)
            eventually(partial(has_run, client, n))
            client.cast(None, "compute", message("run", key=f"cast {n}"))
            client.publish(None, "a", n)
            eventually(lambda: proxy.open == 3)
            proxy.reset()
            assert call.get(timeout=20) == n
        eventually(lambda: counts(client) == dict.fromkeys([*range(5), *(f"cast {n}" for n in range(5))], 1))
        eventually(lambda: events == list(range(5)))
        assert client.process.connection.reconnects >= 5
        assert client.call(None, "compute", message("health"))["lost_wakeups"] == 0
        assert router.varz()["links"] == 3


@pytest.mark.long
def test_5000_calls_and_5000_casts_through_connections_that_break_all_the_time():
    count, workers = 5000, 50
    with (
        RouterProcess(link_consumer_grace_seconds=20) as router,
        Proxy(router.url) as proxy,
        node(proxy.url),
        Client(proxy.url, timeout=60) as client,
    ):
        client.connect()
        stop = gevent.event.Event()

        def cut() -> None:
            while not stop.wait(0.2):
                proxy.reset()

        def work(first: int) -> None:
            for n in range(first, count, workers):
                assert client.call(None, "compute", message("run", key=n)) == n
                client.cast(None, "compute", message("run", key=-1 - n))

        cutter = gevent.spawn(cut)
        try:
            gevent.joinall([gevent.spawn(work, first) for first in range(workers)], raise_error=True, timeout=100)
        finally:
            stop.set()
            cutter.join(20)
        eventually(lambda: counts(client) == dict.fromkeys(range(-count, count), 1), 20)
        assert client.process.connection.reconnects > 3
        assert client.process.connection.lost_wakeups == 0
        varz = router.varz()
        assert varz["process"]["lost_wakeups"] == 0
        assert varz["process"]["internal_errors"] == {}
        assert varz["calls_in_flight"] == 0


def test_a_process_that_stays_away_too_long_begins_anew():
    with (
        RouterProcess(link_resume_seconds=0.3, link_consumer_grace_seconds=0.1) as router,
        Client(router.url) as client,
        Proxy(router.url) as proxy,
    ):
        served = node(proxy.url)
        with served:
            call = gevent.spawn(client.call, None, "compute", message("run", key=1, seconds=60), timeout=60)
            eventually(lambda: counts(client) == {1: 1})
            served.pause()
            proxy.reset()
            with pytest.raises(LinkLost, match="node-1 went away"):
                call.get(timeout=20)
            eventually(lambda: router.varz()["links"] == 1)
            served.resume()
            eventually(lambda: list(consumers(client)) == ["node-1"])
            assert client.call(None, "compute", message("add", a=1), timeout=10) == 1


# --- many come and go, and much comes at once ---------------------------------------------------


@pytest.mark.long
def test_200_clients_that_come_and_go_leave_nothing_behind():
    with (
        RouterProcess(
            link_resume_seconds=1,
            mailbox_max_seconds=1,
            mailbox_unclaimed_seconds=1,
        ) as router,
        node(router.url),
        Client(router.url) as client,
    ):
        before = client.query("summary")
        files = open_files(router.pid)
        running = [program("churn", router.url, 25) for _ in range(4)]
        try:
            for _ in range(4):
                for finished in running[:2]:
                    assert finished.wait(60) == 0, finished.said()
                    finished.close()
                running = [*running[2:], program("churn", router.url, 25)]
            for last in running:
                assert last.wait(60) == 0, last.said()
        finally:
            for each in running:
                each.close()
        eventually(lambda: client.query("summary")["links"] == before["links"])
        eventually(lambda: client.query("summary")["topics"] == before["topics"])
        eventually(lambda: open_files(router.pid) <= files)
        summary = client.query("summary")
        assert summary["calls_in_flight"] == 0
        assert summary["refused"] == {}
        assert router.varz()["process"]["internal_errors"] == {}


def open_files(pid: int) -> int:
    import os

    return len(os.listdir(f"/proc/{pid}/fd"))


def test_a_flood_of_casts_against_a_slow_consumer_is_slowed_down_and_nothing_is_lost():
    count, window, bound = 3000, 100, 50
    with (
        RouterProcess(queue_max_messages=bound) as router,
        Client(router.url) as client,
        program("node", router.url, "node-1", 4) as slow,
    ):
        slow.expect("serving")
        client.call(None, "compute", message("run", key="warm"))
        with program("caster", router.url, count, window) as caster:
            most = int(caster.expect(r"done (\d+)", 60)[1])
            assert caster.wait(60) == 0
            assert caster.lines[-1] == "closed 0"
        assert most <= window
        eventually(lambda: is_idle(client), 20)
        assert counts(client) == dict.fromkeys(["warm", *range(count)], 1)
        numbers = [key for key in client.call(None, "compute", message("ordered")) if key != "warm"]
        assert numbers == list(range(count))


def test_calls_that_end_in_errors_end_once():
    with RouterProcess(queue_max_messages=20) as router, node(router.url, "node-1", 2), Client(router.url) as client:
        ends: Counter[str] = Counter()

        def call(n: int) -> None:
            try:
                client.call(None, "compute", message("run", key=n, seconds=0.05), timeout=0.3)
                ends["ok"] += 1
            except CallError as error:
                ends[type(error).__name__] += 1

        gevent.joinall([gevent.spawn(call, n) for n in range(200)], raise_error=True, timeout=30)
        assert sum(ends.values()) == 200
        assert set(ends) <= {"ok", "Overloaded", "CallTimeout"} and len(ends) >= 2
        eventually(lambda: client.query("summary")["calls_in_flight"] == 0)


# --- what the dispatch log says of it ---------------------------------------------------------


def test_a_call_in_a_killed_router_is_unknown_although_the_next_has_nothing_to_do(tmp_path: Path):
    def shipped() -> list[dict[str, Any]]:
        ship(tmp_path)
        return rows(tmp_path)

    with RouterProcess(dispatch_log_directory=tmp_path, dispatch_log_segment_seconds=1) as router:
        with node(router.url), Client(router.url) as client:
            call = gevent.spawn(client.call, None, "compute", message("run", key=1, seconds=60), timeout=60)
            eventually(lambda: any(boot.in_flight for boot in ship(tmp_path).state.boots.values()), 20)
            router.kill()
            call.kill()
        router.restart()
        (row,) = eventually(shipped, 20)
        assert (row["outcome"], row["method"], row["total_us"]) == ("unknown", "run", None)
