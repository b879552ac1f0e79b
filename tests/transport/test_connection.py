from __future__ import annotations

import errno
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

import gevent
import pytest
import zmq
from gevent.event import Event

import rpcmq.testing
from rpcmq.core.process import dialer
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import IdentityTaken, RouterUnreachable, UsageError
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.transport import gevent_names, wake_loop
from rpcmq.transport.connection import Connection
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.wire import Address, Kind, control, pack
from rpcmq.wire.bodies import HelloBody


class Process:
    """A connection with the plainest of engines on it."""

    def __init__(self, url: str, identity: str = "api-1", **times: Any) -> None:
        self.welcomes: list[Welcome] = []
        self.woken = 0
        self.ticks: list[float] = []
        self.deadline: float | None = None
        hello = HelloBody(versions=(1,), identity=identity, queue_type="roundrobin", role="process", accepts=("json",))
        self.uplink = Uplink(hello, self._welcomed, self._refused)
        shell = GeventShell()
        self.connection = Connection((url,), self.uplink, (self,), self._after_receive, lambda: None, shell, **times)

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self.welcomes.append(welcome)
        self.connection.on_ready()

    def _refused(self, reason: str, text: str) -> None:
        self.connection.on_refused(reason, text)

    def _after_receive(self) -> None:
        self.woken += 1

    def tick(self, now: float) -> None:
        self.ticks.append(now)
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None

    def next_deadline(self) -> float | None:
        return self.deadline

    casts_at_risk = 0

    def cast(self, topic: str = "compute") -> None:
        message = pack(
            Kind.CAST, b"p", format=1, key=self.uplink.next_key(), address=Address(topic).encode(), method=b"m"
        )
        self.uplink.send(message)
        self.casts_at_risk += 1
        self.connection.schedule()


class Endless:
    """A socket on which there is always something to receive."""

    def __init__(self) -> None:
        self.socket: Any = self
        self.received = 0

    def readable(self) -> bool:
        return True

    def receive(self) -> tuple[bytes, bytes, tuple[()]]:
        self.received += 1
        return b"", pack(Kind.HEARTBEAT), ()


@pytest.fixture
def make(router) -> Iterator[Callable[..., Process]]:
    with ExitStack() as stack:

        def make(url: str | None = None, identity: str = "api-1", **times: Any) -> Process:
            process = Process(url or router.url, identity, **times)
            stack.callback(process.connection.close, 0.2)
            return process

        yield make


def queued(router: InProcessRouter, topic: str = "compute") -> int:
    return sum(row["queued"] for row in router.query("topics")["topics"] if row["topic"] == topic)


def test_it_connects_when_it_is_waited_for(router, make):
    process = make()
    assert not process.connection.connected
    process.connection.wait_ready(20)
    assert process.connection.connected
    assert len(process.welcomes) == 1
    assert router.query("summary")["links"] == 1


def test_what_was_queued_before_is_sent_then(router, make):
    process = make()
    process.connection.wait_ready(20)
    process.uplink.lost(0.0)
    process.connection._reconnector.lost()
    for _ in range(1000):
        process.cast()
    eventually(lambda: queued(router) == 1000)
    assert process.connection.reconnects >= 0


def test_a_deadline_is_kept(make):
    process = make()
    process.connection.wait_ready(20)
    from time import monotonic

    process.deadline = monotonic() + 0.03
    process.connection.schedule()
    eventually(lambda: process.deadline is None)


def test_a_sooner_deadline_goes_first(make):
    process = make()
    process.connection.wait_ready(20)
    from time import monotonic

    process.deadline = monotonic() + 100
    process.connection.schedule()
    gevent.sleep(0.02)
    process.deadline = monotonic() + 0.02
    process.connection.schedule()
    eventually(lambda: process.deadline is None)


def test_nobody_there(make, free_port):
    process = make(f"tcp://127.0.0.1:{free_port}")
    with pytest.raises(RouterUnreachable, match=r"not reachable within 0.1 s: nothing listens there"):
        process.connection.wait_ready(0.1)


def test_a_host_name_that_does_not_resolve_is_said(make, monkeypatch):
    def getaddrinfo(host: str, *args: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(gevent_names, "getaddrinfo", getaddrinfo)
    process = make("tcp://no-such-host.invalid:7700")
    problem = r"the host name 'no-such-host.invalid' does not resolve \(Name or service not known\)"
    waiting = gevent.spawn(process.connection.wait_ready, 20)
    eventually(lambda: re.search(problem, process.connection.condition))
    waiting.kill()
    with pytest.raises(RouterUnreachable, match=rf"not reachable within 0.2 s: {problem}"):
        process.connection.wait_ready(0.2)
    # It may be known later: there are further attempts, and what ends is not said of the next.
    assert process.connection.condition.startswith("the router is not connected (the host name 'no-such-host.invalid'")


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "tcp://[::1]:1", "ipc:///tmp/x", "tcp://eth0:0;router:7700"])
def test_addresses_are_not_looked_up(url):
    assert gevent_names.GeventNameCheck(url, pytest.fail)._greenlet is None


def test_a_check_that_is_closed_says_nothing(monkeypatch):
    asked, answer = Event(), Event()

    def getaddrinfo(*args: Any) -> Any:
        asked.set()
        answer.wait(20)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(gevent_names, "getaddrinfo", getaddrinfo)
    check = gevent_names.GeventNameCheck("tcp://router:7700", pytest.fail)
    assert asked.wait(20)
    greenlet: Any = check._greenlet
    check.close()
    answer.set()
    greenlet.join(20)
    assert greenlet.dead and greenlet.exception is None


def test_somebody_who_does_not_speak_zeromq(make):
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            process = make(f"tcp://127.0.0.1:{server.getsockname()[1]}")
            with pytest.raises(RouterUnreachable, match=r"handshake with .* failed|connection was closed|no answer"):
                process.connection.wait_ready(0.3)
            process.connection.close(0)
        finally:
            done.set()
            with socket.create_connection(server.getsockname()):
                pass
            thread.join(20)


def test_somebody_who_never_answers(make):
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = make(f"tcp://127.0.0.1:{server.getsockname()[1]}", connect_timeout=0.05)
        with pytest.raises(RouterUnreachable, match=r"no answer"):
            process.connection.wait_ready(0.3)


def test_a_url_that_cannot_be_used(make):
    process = make("nonsense://127.0.0.1:1")
    with pytest.raises(RouterUnreachable, match="cannot connect to it"):
        process.connection.wait_ready(0.2)


def test_an_identity_that_is_taken_is_insisted_on_for_a_while(make, monkeypatch):
    monkeypatch.setattr(dialer, "INSIST_SECONDS", 5.0)
    first = make()
    first.connection.wait_ready(20)
    second = make()
    waiting = gevent.spawn(second.connection.wait_ready, 20)
    gevent.sleep(0.1)
    assert not waiting.ready()
    first.connection.close()
    waiting.get(timeout=20)


def test_an_identity_that_stays_taken_is_given_up(make, monkeypatch):
    monkeypatch.setattr(dialer, "INSIST_SECONDS", 0.1)
    make().connection.wait_ready(20)
    second = make()
    with pytest.raises(IdentityTaken, match="'api-1' is taken"):
        second.connection.wait_ready(20)
    with pytest.raises(IdentityTaken):
        second.connection.check_open()


def test_a_lost_connection_is_made_again_and_the_session_goes_on(router, make):
    process = make()
    process.connection.wait_ready(20)
    for _ in range(5):
        process.cast()
        process.connection._reconnector.lost()
        eventually(lambda: len(process.welcomes) == process.connection.reconnects + 1)
        assert process.welcomes[-1].resumed
    eventually(lambda: queued(router) == 5)
    assert process.connection.reconnects == 5
    assert router.query("summary")["links"] == 1


def test_close_hands_over_what_is_queued(router, make):
    process = make()
    process.connection.wait_ready(20)
    for _ in range(500):
        process.cast()
    process.connection.close()
    eventually(lambda: queued(router) == 500)
    eventually(lambda: router.query("summary")["links"] == 0)
    process.connection.close()
    with pytest.raises(UsageError, match="closed"):
        process.connection.wait_ready(1)


def test_close_while_the_router_is_away_is_bounded(caplog):
    with rpcmq.testing.router() as router:
        process = Process(router.url)
        process.connection.wait_ready(20)
    eventually(lambda: not process.connection.connected)
    process.cast()
    process.connection.close(0.05)
    assert "acknowledged 1 cast, which may be lost; the router is not connected" in caplog.text


def test_close_from_the_hub(router, make):
    process = make()
    process.connection.wait_ready(20)
    process.cast()
    gevent.get_hub().loop.run_callback(process.connection.close)
    eventually(lambda: queued(router) == 1)
    eventually(lambda: router.query("summary")["links"] == 0)


def test_close_while_it_connects(make, free_port):
    process = make(f"tcp://127.0.0.1:{free_port}")
    waiting = gevent.spawn(process.connection.wait_ready, 20)
    gevent.sleep(0.05)
    process.connection.close()
    with pytest.raises(UsageError, match="closed"):
        waiting.get(timeout=20)


def test_a_router_that_never_welcomes_is_given_up_and_hello_is_said_to_the_next(make, free_port):
    url = f"tcp://127.0.0.1:{free_port}"
    context = zmq.Context()
    mute = context.socket(zmq.ROUTER)
    mute.bind(url)
    process = make(url, connect_timeout=0.5, reconnect_max_seconds=0.05)
    waiting, said = gevent.spawn(process.connection.wait_ready, 60), [0]

    def said_again() -> bool:
        while mute.poll(0):
            said[0] += mute.recv_multipart()[1][5] == Kind.HELLO
        return said[0] > 1

    eventually(said_again)
    waiting.kill()
    with pytest.raises(RouterUnreachable, match=r"connected, but the router has not welcomed us within 0\.5 s"):
        process.connection.wait_ready(0.1)
    context.destroy(linger=0)
    with rpcmq.testing.router(router_listen=url):
        process.connection.wait_ready(20)
        process.connection.close(0.2)


def test_a_refusal_for_any_reason_leads_to_another_hello(router, make, monkeypatch):
    handshake, refusals = router._embedded.engine.handshake, ["protocol", "draining", "whatever"]
    hello = handshake.hello

    def refuse(*args: Any) -> Any:
        if not refusals:
            return hello(*args)
        return control(Kind.REFUSED, {"reason": refusals.pop(), "text": "on purpose"})

    monkeypatch.setattr(handshake, "hello", refuse)
    process = make(reconnect_max_seconds=0.05)
    process.connection.wait_ready(20)
    assert refusals == []


def test_file_descriptors_that_have_run_out_are_waited_for(make, monkeypatch):
    def none_left(*args: Any, **options: Any) -> None:
        monkeypatch.undo()
        raise zmq.ZMQError(errno.EMFILE)

    monkeypatch.setattr("rpcmq.transport.dialed_socket.BatchSocket", none_left)
    make().connection.wait_ready(20)


def _descriptors() -> dict[str, str]:
    """What is open in this process, by number."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def test_file_descriptors_are_given_back(make):
    make().connection.wait_ready(20)

    def come_and_go() -> None:
        process = make(identity="other", reconnect_max_seconds=0.05)
        for _ in range(3):
            process.connection.wait_ready(20)
            process.connection._reconnector.lost()
        process.connection.wait_ready(20)
        process.connection.close()

    come_and_go()  # opens what stays open for the process's life, as libzmq's threads
    before = _descriptors()
    come_and_go()

    def given_back() -> bool:
        after = _descriptors()
        assert len(after) <= len(before), f"{after} after {before}"
        return True

    eventually(given_back)


def test_threads_are_told_apart(make):
    process = make()
    process.connection.check_thread()
    assert process.connection.of_this_thread

    def elsewhere() -> Any:
        assert not process.connection.of_this_thread
        process.connection.check_thread()

    with pytest.raises(UsageError, match="another OS thread"):
        gevent.get_hub().threadpool.apply(elsewhere)


def test_others_get_their_turn_while_a_router_sends_what_takes_long(make, monkeypatch):
    loop = make().connection._loop
    clock, dialed = count(0.0, 0.004), Endless()
    monkeypatch.setattr(wake_loop, "monotonic", lambda: next(clock))
    monkeypatch.setattr(loop, "_dialed", dialed)
    assert (loop._receive(0.01), dialed.received) == (64, 4)
    # Before anybody is called silent, and when the connection has broken, it is all that counts.
    assert (loop._receive(), dialed.received) == (64, 4 + 64)
    dialed.socket = None


def test_an_exception_in_an_engine_does_not_stop_the_loop(make, capfd):
    process = make()
    process.connection.wait_ready(20)
    original = process.connection._loop._after_receive

    def fail() -> None:
        process.connection._loop._after_receive = original
        raise RuntimeError("on purpose")

    process.connection._loop._after_receive = fail
    process.connection.schedule()
    printed: list[str] = []

    def is_told() -> bool:
        printed.append(capfd.readouterr().err)
        return "on purpose" in "".join(printed)

    eventually(is_told)
    before = process.woken
    process.connection.schedule()
    eventually(lambda: process.woken > before)
