"""Connections that libzmq owns: how they are broken, and what their ends are counted as."""

from __future__ import annotations

import socket
from time import monotonic

import zmq
from gevent import get_hub
from gevent.event import Event

from rpcmq import Client, Service
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.transport import router_shell, tick_timer
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.wire import Kind, control
from tests.client.endpoints import Compute


def test_a_batch_that_costs_much_does_not_make_the_router_deaf(rpcmq_router):
    """Four thousand controls in one batch: somebody else is answered long before the last of them."""
    url, links = rpcmq_router.url, rpcmq_router._embedded.engine.links
    context = new_context()
    greedy = BatchSocket(context, zmq.DEALER, max_bytes=1 << 26)
    with Client(url) as client, Service("other", Compute(), client=client), Client(url) as honest:
        greedy.socket.connect(url)
        greedy.send(b"", [control(Kind.HELLO, {"identity": "greedy", "queue_type": "roundrobin", "versions": [1]})])
        purge = {"what": "control.purge", "topic": "nobody"}
        queries = [control(Kind.QUERY, purge, sequence=number) for number in range(1, 4001)]
        honest.connect(10)
        greedy.send(b"", queries)
        eventually(lambda: any(link.inbox for link in links))
        assert honest.call(None, "other", {"method": "add", "args": {"a": 1}}, timeout=20) == 1
        link = links.by_identity("greedy")
        assert link.inbox
        eventually(lambda: not link.inbox, 30)
        assert link.received == 4000
    greedy.close()
    context.destroy(linger=0)


def test_timers_of_the_hub_have_their_turn_while_the_router_has_more_to_do(rpcmq_router, monkeypatch):
    """As callbacks of the hub 50 wake-ups went before any timer: no deadline, no bound was looked at meanwhile."""
    shell = rpcmq_router._embedded.shell
    wakes = 0
    monkeypatch.setattr(shell, "_has_more", lambda rounds: True)
    take_turn = shell._turn

    def turn() -> int:
        nonlocal wakes
        wakes += 1
        return int(take_turn())

    monkeypatch.setattr(shell, "_turn", turn)
    fired = Event()
    timer = get_hub().loop.timer(0.0)
    shell.wake()
    timer.start(fired.set)
    assert fired.wait(20)
    assert wakes <= 5
    eventually(lambda: wakes > 100)


def test_what_is_due_is_done_however_late_the_router_always_is(rpcmq_router, monkeypatch):
    """Once who seems silent is heard first; a router that never has CPU enough put off all deadlines for good."""
    shell = rpcmq_router._embedded.shell
    ticks: list[float] = []
    monkeypatch.setattr(rpcmq_router._embedded.engine, "tick", ticks.append)
    for done in (0, 1, 1, 2):
        shell._timer.due = monotonic() - 1.0
        shell._timer.fire()
        assert len(ticks) == done
    monkeypatch.undo()


def test_a_closed_link_that_had_asked_for_views_is_not_worked_for(rpcmq_router):
    url, engine = rpcmq_router.url, rpcmq_router._embedded.engine
    with Client(url) as client:
        client.connect(10)
        link = engine.links.by_identity(client.identity)
        for number in range(1, 51):
            engine.queries.ask(monotonic(), link, link.origin + bytes(7) + bytes([number]), "overview")
        client.process.connection._dialed.close()
        eventually(lambda: link.route is None)
        eventually(lambda: not engine.queries.is_anybody_waiting)
        eventually(lambda: len(engine.queries._asked.get(link, ())) > 30)


# --- what the end of a connection is counted as ---------------------------------------------------


def failures(router: InProcessRouter) -> dict[str, int]:
    counters = router.query("summary")["counters"]
    return {name: count for name, count in counters.items() if name.startswith("handshake failed")}


def connections(router: InProcessRouter) -> int:
    """The number of connections that the shell knows."""
    shell = router._embedded.shell
    return len(shell._connections)


def test_a_clean_goodbye_is_no_failed_handshake(router, serve):
    class Compute:
        def note(self, ctx: object) -> None:
            pass

    for _ in range(5):
        service = serve(Compute())
        with Client(router.url) as client:
            client.cast(None, "compute", {"method": "note"})
            client.publish(None, "a", 1)
        service.stop()
    lost = Client(router.url)
    lost.connect()
    lost.process.connection._dialed.close()
    eventually(lambda: connections(router) == 0)
    assert failures(router) == {}
    lost.close(0.0)


def test_who_goes_before_hello_is_no_failed_handshake(router):
    context = zmq.Context()
    for _ in range(5):
        dealer = context.socket(zmq.DEALER)
        monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        dealer.connect(router.url)
        eventually(lambda monitor=monitor: monitor.poll(0))  # type: ignore[misc]
        dealer.disable_monitor()
        monitor.close(linger=0)
        dealer.close(linger=0)
    context.destroy(linger=0)
    eventually(lambda: connections(router) == 0)
    assert failures(router) == {}


def test_who_speaks_no_zmtp_is_a_failed_handshake_also_beside_those_who_do(router):
    host, port = router.url.removeprefix("tcp://").split(":")
    for count in range(1, 4):
        with Client(router.url) as client:
            client.connect()
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\nHost: router.example\r\n\r\n" * 3)
            eventually(lambda count=count: sum(failures(router).values()) == count)  # type: ignore[misc]
    eventually(lambda: connections(router) == 0)
    assert sum(failures(router).values()) == 3


def test_what_is_long_due_does_not_pass_for_a_stop_of_the_router(rpcmq_router, monkeypatch):
    """It did, and of a stop that followed the router then judged its processes before it had heard them."""
    shell = rpcmq_router._embedded.shell
    monkeypatch.setattr(shell.router, "next_deadline", lambda: monotonic() - 5)
    shell._timer.due = 0.0
    now = monotonic()
    shell._arm()
    assert shell._timer.due >= now
    assert not shell._timer.has_caught_up
    shell._timer.fire()
    assert not shell._timer.has_caught_up


def test_a_message_that_comes_alone_is_passed_on_before_the_socket_is_asked_for_more(rpcmq_router, monkeypatch):
    """To ask takes as long as to receive, and has to be done after sending anyway. It was done three times."""
    shell = rpcmq_router._embedded.shell
    done: list[str] = []

    def noted(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def noting(*args):
            done.append(name)
            return function(*args)

        monkeypatch.setattr(owner, name, noting)

    with Client(rpcmq_router.url) as client, Service("alone", Compute(), client=client):
        client.connect(20)
        add = {"method": "add", "args": {"a": 1}}
        client.call(None, "alone", add, timeout=20)
        noted(shell._socket, "receive")
        noted(shell._socket, "readable")
        for _ in range(50):
            client.call(None, "alone", add, timeout=20)
        monkeypatch.undo()
    assert done.count("receive") >= 50
    assert done.count("readable") < 1.5 * done.count("receive")
    assert rpcmq_router.lost_wakeups == 0


def test_deadlines_are_not_computed_for_each_of_many_messages_and_yet_met(rpcmq_router, monkeypatch):
    shell, computed, deadline = rpcmq_router._embedded.shell, 0, 1000.0
    slack = tick_timer._SLACK

    def next_deadline() -> float:
        nonlocal computed
        computed += 1
        return deadline

    def arm(now: float) -> None:
        monkeypatch.setattr(router_shell, "monotonic", lambda: now)
        shell._arm()
        assert 0 < shell._timer.due <= max(deadline, now) + slack

    monkeypatch.setattr(shell.router, "next_deadline", next_deadline)
    shell._timer.stop()
    shell._timer.due = shell._timer._set_at = 0.0
    shell._lone_wakes = router_shell._LONE_WAKES
    for number in range(100):
        # Far from one another: no timer but the deadline's.
        arm(100.0 + number)
    assert computed == 100 and shell._timer.due == deadline
    for number in range(500):
        arm(300.0 + number * slack / 1000)
    assert computed == 102
    deadline = 300.0 + slack / 2
    arm(deadline)
    assert computed == 102 and shell._timer.due <= deadline + slack
