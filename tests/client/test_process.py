"""The cast window, cancellation, and the state that calls leave behind."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from time import monotonic
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq import rpc
from rpcmq.client import Client
from rpcmq.client.cast_window import CastWindow, _no_room
from rpcmq.client.hello import default_identity
from rpcmq.client.process import Process as ClientProcess
from rpcmq.config import ClientConfig
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import CallTimeout, Outcome, Overloaded, RouterUnreachable
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message, topic
from tests.core.process.calling import COMPUTE, OTHER, Process
from tests.core.process.test_open_casts import PlayedRouter
from tests.from_threads import ordered

# --- cancellation -------------------------------------------------------------------------------


def test_a_queued_call_whose_greenlet_is_killed_never_runs(router, client, serve):
    compute = Compute()
    serve(compute, concurrency=1)
    running = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10)
    assert compute.started.wait(20)
    queued = gevent.spawn(client.call, None, "compute", message("note", value=1), timeout=10)
    eventually(lambda: topic(router)["queued"] == 1)
    queued.kill()
    eventually(lambda: topic(router)["queued"] == 0)
    compute.go_on.set()
    assert running.get(timeout=20) == "held"
    assert client.call(None, "compute", message("add", a=1)) == 1
    assert compute.seen == []


def test_a_running_call_whose_greenlet_is_killed_is_told(router, client, serve):
    compute = Compute()
    serve(compute)
    running = gevent.spawn(client.call, None, "compute", message("until_cancelled"), timeout=10)
    assert compute.started.wait(20)
    running.kill()
    eventually(lambda: compute.ended == ["cancelled"])
    eventually(lambda: topic(router)["in_flight"] == 0)


def test_a_gevent_timeout_cancels_the_call(router, client, serve):
    compute = Compute()
    serve(compute)
    with pytest.raises(gevent.Timeout), gevent.Timeout(1.0):
        client.call(None, "compute", message("until_cancelled"), timeout=10)
    eventually(lambda: compute.ended == ["cancelled"])
    assert client.call(None, "compute", message("add", a=1)) == 1


def test_a_timeout_of_the_call_cancels_it_too(client, serve):
    compute = Compute()
    serve(compute)
    client.connect(20)
    with pytest.raises(CallTimeout):
        client.call(None, "compute", message("until_cancelled"), timeout=1.0)
    eventually(lambda: compute.ended == ["cancelled"])


def test_calls_leave_nothing_behind(router, client, serve):
    compute = Compute()
    serve(compute)
    client.connect()
    for n in range(20):
        with pytest.raises(CallTimeout):
            client.call(None, "nobody", message("add"), timeout=0.001)
        with suppress(gevent.Timeout), gevent.Timeout(0.001):
            client.call(None, "compute", message("until_cancelled"), timeout=10)
        client.call(None, "compute", message("add", a=n))
    assert client.process.calls.open == {}
    eventually(lambda: router.query("summary")["calls_in_flight"] == 0)
    eventually(lambda: topic(router)["in_flight"] == 0)
    assert router.query("calls")["calls"] == []


# --- the cast window ----------------------------------------------------------------------------


@pytest.mark.parametrize("window", [{"cast_window": 1}, {"cast_window": 10}, {"cast_window_bytes": 1024}])
def test_a_small_window_slows_the_sender_and_loses_nothing(connect, serve, window):
    compute = Compute()
    serve(compute)
    client = connect(**window)
    for n in range(300):
        client.cast(None, "compute", message("note", value=n), timeout=20)
        assert client.process.casts.open <= window.get("cast_window", 300)
    eventually(lambda: len(compute.seen) == 300)
    assert ordered(compute.seen) == list(range(300))


def test_many_senders_share_the_window(connect, serve):
    compute = Compute()
    serve(compute)
    client = connect(cast_window=5)

    def send(sender: int) -> None:
        for n in range(20):
            client.cast(None, "compute", message("note", value=(sender, n)), timeout=10)

    gevent.joinall([gevent.spawn(send, sender) for sender in range(20)], raise_error=True)
    eventually(lambda: len(compute.seen) == 400)
    for sender in range(20):
        assert ordered([n for s, n in compute.seen if s == sender]) == list(range(20))


@pytest.mark.parametrize("confirm", [False, True])
def test_senders_that_wait_for_the_first_connection_share_the_window(router, serve, monkeypatch, confirm):
    compute = Compute()
    serve(compute)
    most = 0
    next_key = Uplink.next_key

    def watched(uplink: Uplink) -> bytes:
        nonlocal most
        most = max(most, client.process.casts.open + 1)
        return next_key(uplink)

    with Client(router.url, cast_window=5) as client:

        def send(value: int) -> None:
            client.cast(None, "compute", message("note", value=value), confirm=confirm, timeout=10)

        with monkeypatch.context() as patch:
            patch.setattr(Uplink, "next_key", watched)
            gevent.joinall([gevent.spawn(send, n) for n in range(30)], raise_error=True)
        eventually(lambda: sorted(compute.seen) == list(range(30)))
    assert 1 <= most <= 5


def test_a_window_that_stays_full_is_one_clear_error():
    with rpcmq.testing.router() as router:
        client = Client(router.url, cast_window=3)
        client.connect()
    eventually(lambda: not client.process.connection.connected)
    for _ in range(3):
        client.cast(None, "compute", message("note"))
    with pytest.raises(
        Overloaded, match=r"3 casts \(\d+ bytes\) wait .* for 0.05 s now \(cast_window = 3\); the router is not"
    ):
        client.cast(None, "compute", message("note"), timeout=0.05)
    client.close()


def test_the_window_counts_what_was_taken_back():
    with rpcmq.testing.router() as router:
        client = Client(router.url)
        client.connect()
    eventually(lambda: not client.process.connection.connected)
    with pytest.raises(CallTimeout, match="has not confirmed the cast"):
        client.cast(None, "compute", message("note"), confirm=True, timeout=0.05)
    assert (client.process.casts.open, client.process.casts.open_bytes) == (0, 0)
    client.close()


def test_the_window_is_open_again_in_the_end(client, serve):
    serve(Compute())
    for _ in range(500):
        client.cast(None, "compute", message("note"))
    client.cast(None, "compute", message("note"), confirm=True)
    client.process.uplink.ask_acknowledgement()
    client.process.connection.schedule()
    eventually(lambda: client.process.casts.open == 0)
    assert client.process.casts.open_bytes == 0


def test_casts_that_a_full_queue_refuses_are_offered_again_in_order():
    compute = Compute()
    with (
        rpcmq.testing.router(queue_max_messages=5) as router,
        Client(router.url, cast_window=50) as client,
        rpcmq.Service("compute", compute, router=router.url, concurrency=1) as service,
    ):
        holding = gevent.spawn(client.call, None, "compute", message("hold"), timeout=20)
        assert compute.started.wait(20)
        for n in range(40):
            client.cast(None, "compute", message("note", value=n))
        eventually(lambda: client.process.casts.counters["casts put back"] > 0)
        assert topic(router)["queued"] == 5
        compute.go_on.set()
        assert holding.get(timeout=20) == "held"
        eventually(lambda: len(compute.seen) == 40, 20)
        assert compute.seen == list(range(40))
        router.check()
        assert service.stop()


def test_closing_waits_for_casts_that_a_full_queue_has_given_back():
    compute = Compute()
    with (
        rpcmq.testing.router(queue_max_messages=5) as router,
        Client(router.url) as client,
        rpcmq.Service("compute", compute, router=router.url, concurrency=1),
    ):
        holding = gevent.spawn(rpc.call, None, "compute", message("hold"), timeout=20)
        assert compute.started.wait(20)
        for n in range(30):
            client.cast(None, "compute", message("note", value=n))
        eventually(lambda: client.process.casts.counters["casts put back"] > 0)
        closing = gevent.spawn(client.close, 10)
        gevent.sleep(0.05)
        assert not closing.ready()
        compute.go_on.set()
        closing.get(timeout=20)
        assert holding.get(timeout=20) == "held"
        eventually(lambda: compute.seen == list(range(30)))


def test_casts_that_are_not_taken_in_time_are_reported(caplog):
    compute = Compute()
    with (
        rpcmq.testing.router(queue_max_messages=5) as router,
        Client(router.url) as client,
        rpcmq.Service("compute", compute, router=router.url, concurrency=1),
    ):
        holding = gevent.spawn(rpc.call, None, "compute", message("hold"), timeout=20)
        assert compute.started.wait(20)
        for n in range(30):
            client.cast(None, "compute", message("note", value=n))
        eventually(lambda: client.process.casts.at_risk == 25)
        client.close(0.05)
        assert "acknowledged 25 casts, which may be lost; the router is connected" in caplog.text
        compute.go_on.set()
        assert holding.get(timeout=20) == "held"


def test_one_full_topic_holds_up_the_casts_to_no_other():
    compute, other = Compute(), Compute()
    with (
        rpcmq.testing.router(queue_max_messages=5) as router,
        Client(router.url, cast_window=10) as client,
        rpcmq.Service("compute", compute, router=router.url, concurrency=1),
        rpcmq.Service("other", other, router=router.url),
    ):
        holding = gevent.spawn(client.call, None, "compute", message("hold"), timeout=30)
        assert compute.started.wait(20)

        def flood() -> None:
            for n in range(40):
                client.cast(None, "compute", message("note", value=n), timeout=30)

        sender = gevent.spawn(flood)
        eventually(lambda: client.process.casts.refused.casts == 10)
        with pytest.raises(Overloaded) as refused:
            client.cast(None, "compute", message("note", value="too many"), timeout=0.3)
        for n in range(100):
            client.cast(None, "other", message("note", value=n), timeout=20)
        eventually(lambda: other.seen == list(range(100)))
        assert not sender.ready() and compute.seen == []
        compute.go_on.set()
        assert holding.get(timeout=20) == "held"
        sender.get(timeout=20)
        eventually(lambda: compute.seen == list(range(40)), 20)
    text = str(refused.value)
    assert "cast to 'compute' not sent: 10 casts (" in text and "(cast_window = 10)" in text
    assert "'compute' is full: 5 messages, " in text and "queue.max_messages = 5" in text
    details = refused.value.details
    assert (details["topic"], details["limit"], details["limit_value"]) == ("compute", "cast_window", 10)
    assert (details["queue"]["limit"], details["queue"]["limit_value"]) == ("queue.max_messages", 5)


def test_the_error_of_a_full_window_tells_the_casts_to_its_topic_from_all():
    process = Process()
    router = PlayedRouter(process)
    for _ in range(2):
        process.cast(COMPUTE)
        router.refuse(Outcome.OVERLOADED, limit_value=1)
    for _ in range(3):
        process.cast(OTHER)
    router.acknowledge()
    error = _no_room(process.casts, ClientConfig(cast_window=4), COMPUTE, "compute", 1.0, "connected")
    assert re.match(
        r"cast to 'compute' not sent: 5 casts \(\d+ bytes\) wait for the router to take them, 2 of them to 'compute', "
        r"for 1 s now \(cast_window = 4\)",
        str(error),
    )


def test_casts_to_many_full_topics_are_bounded_together():
    with (
        rpcmq.testing.router(queue_max_messages=1) as router,
        Client(router.url, cast_window_total_bytes=2048) as client,
    ):
        client.connect(20)

        def cast_to_all() -> None:
            for n in range(1000):
                client.cast(None, f"topic-{n % 10}", message("note", value="x" * 200), timeout=0.2)

        with pytest.raises(Overloaded, match=r"cast_window_total_bytes = 2048\); casts to 'topic-") as refused:
            cast_to_all()
        assert refused.value.details["limit"] == "cast_window_total_bytes"


def test_confirm_ends_within_its_timeout(monkeypatch):
    with rpcmq.testing.router() as router:
        client = Client(router.url, cast_window=1)
        client.connect()
    eventually(lambda: not client.process.connection.connected)
    client.cast(None, "compute", message("note"))
    # There is room after a while, and nobody confirms.
    monkeypatch.setattr(CastWindow, "wait", lambda window, address, timeout, name: gevent.sleep(0.5))
    wait_within, waits = ClientProcess.wait_within, list[float]()

    def waiting(process: ClientProcess, seconds: float, *rest: Any) -> bool:
        waits.append(seconds)
        return wait_within(process, seconds, *rest)

    monkeypatch.setattr(ClientProcess, "wait_within", waiting)
    text = r"to 'compute' within 1 s: the router is not connected .*; it was not sent, and will not be"
    with pytest.raises(CallTimeout, match=text) as ended:
        client.cast(None, "compute", message("note"), confirm=True, timeout=1.0)
    assert ended.value.details == {"topic": "compute", "started": "no"}
    assert client.statistics()["casts_open"] == 1, "that of before"
    assert len(waits) == 1 and waits[0] <= 0.5, "not the timeout for room, and then again for the confirmation"
    client.close(0.0)


def test_confirm_waits_no_longer_than_its_timeout_for_a_router(free_port):
    client = Client(f"tcp://127.0.0.1:{free_port}", connect_timeout=60.0)
    started = monotonic()
    with pytest.raises(RouterUnreachable):
        client.cast(None, "compute", message("note"), confirm=True, timeout=0.3)
    assert monotonic() - started < 30.0
    client.close(0.0)


def test_a_sender_is_slowed_by_a_full_queue():
    compute = Compute()
    with (
        rpcmq.testing.router(queue_max_messages=5) as router,
        Client(router.url, cast_window=10) as client,
        rpcmq.Service("compute", compute, router=router.url, concurrency=1),
    ):
        holding = gevent.spawn(client.call, None, "compute", message("hold"), timeout=20)
        assert compute.started.wait(20)

        def flood() -> None:
            for n in range(60):
                client.cast(None, "compute", message("note", value=n), timeout=20)

        sender = gevent.spawn(flood)
        eventually(lambda: client.process.casts.open == 10)
        gevent.sleep(0.25)
        assert not sender.ready()
        assert client.process.casts.open == 10
        compute.go_on.set()
        holding.get(timeout=20)
        sender.get(timeout=20)
        eventually(lambda: len(compute.seen) == 60, 20)
        assert compute.seen == list(range(60))


def test_a_confirmed_cast_to_a_full_queue_is_refused():
    compute = Compute()
    with (
        rpcmq.testing.router(queue_max_messages=1) as router,
        Client(router.url) as client,
    ):
        client.cast(None, "compute", message("note", value=1), confirm=True)
        with pytest.raises(Overloaded, match="'compute' is full"):
            client.cast(None, "compute", message("note", value=2), confirm=True)
        with rpcmq.Service("compute", compute, router=router.url):
            eventually(lambda: compute.seen == [1])


# --- one process, one connection ----------------------------------------------------------------


def open_files() -> int:
    """Count this process's open files, once nobody closes or opens any: sockets are closed by libzmq's threads."""
    counts: list[int] = []

    def settled() -> bool:
        counts.append(len(os.listdir("/proc/self/fd")))
        return len(set(counts[-20:])) == 1 and len(counts) >= 20

    eventually(settled)
    return counts[-1]


def test_two_services_share_the_connection_of_a_client(router, client, serve):
    client.connect()
    before = open_files()
    first, second = Compute(), Compute()
    serve(first, "compute", client=client)
    serve(second, "network", client=client)
    assert client.call(None, "compute", message("add", a=1)) == 1
    assert client.call(None, "network", message("add", a=2)) == 2
    assert open_files() == before
    (process,) = router.query("processes")["processes"]
    assert process["consumers"] == ["compute.node-7", "network.node-7"]


def test_file_descriptors_do_not_grow_with_calls_topics_or_subscriptions(client, serve):
    services = [serve(Compute(), f"topic-{n}", client=client) for n in range(50)]
    client.call(None, "topic-0", message("add", a=1))
    client.subscribe("a.#", lambda ctx, name, payload: None)
    before = open_files()
    for n in range(1000):
        client.call(None, f"topic-{n % 50}", message("add", a=1))
    for n in range(100):
        client.cast(None, f"nobody-{n}", message("note"), confirm=True)
        client.subscribe(f"b.{n}", lambda ctx, name, payload: None)
    assert open_files() == before
    for service in services:
        service.stop()
    assert open_files() == before


def test_clients_that_are_closed_leave_no_file_descriptor(router, connect):
    def use() -> None:
        with Client(router.url) as client:
            client.query("summary")

    use()
    before = open_files()
    for _ in range(20):
        use()
    eventually(lambda: open_files() <= before)
    eventually(lambda: router.query("summary")["links"] == 0)


def test_default_identity_names_host_program_and_process():
    first, second = default_identity(), default_identity()
    assert first != second
    assert re.fullmatch(rf"{re.escape(socket.gethostname())}:[^:]+:{os.getpid()}:[0-9a-f]+", first)


@pytest.mark.own_hub
def test_messages_that_a_scheduled_wake_up_will_read_are_no_lost_wake_up(client, monkeypatch):
    """A long wake-up reads a part only, and the watchdog looks twice before the loop comes to the rest."""
    client.connect()
    connection = client.process.connection
    loop, socket = connection._loop, connection._dialed.socket
    with monkeypatch.context() as patch:
        patch.setattr(socket, "readable", lambda: True)
        patch.setattr(loop._watchdog, "_wake", lambda: None)
        loop.schedule()
        for _ in range(2):
            loop._watchdog._look()
    assert connection.lost_wakeups == 0
    eventually(lambda: not loop._scheduled)
    loop._watchdog._look()
    assert connection.lost_wakeups == 0
