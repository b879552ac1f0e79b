"""Duration and reports of close and stop, beside a router that lives, is dead, or is silent."""

from __future__ import annotations

import gc
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import pytest

import rpcmq.testing
from rpcmq.client import Client, Service
from rpcmq.core.router.model import Link
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from rpcmq.wire import Kind
from tests.client.endpoints import Compute, message

#: Casts and publishes what a router does not take, and ends.
_PROGRAM = """
import sys
from rpcmq.client import Client
client = Client(sys.argv[1], linger_seconds=float(sys.argv[2]))
client.connect()
client.subscribe("news.#", print)
print("ready")
sys.stdin.readline()
client.cast(None, "compute", {"method": "note"})
client.publish(None, "news.a", 1)
"""
#: Time that clients linger that need not be prompt, and less than twice as long: they wait once.
LINGER = 4.0
SECONDS = 7.9
#: In seconds: who waits as long has not been prompt.
LONG = 30.0


@pytest.fixture
def daemon() -> Iterator[RouterProcess]:
    with RouterProcess(router_recovery_seconds=0) as process:
        yield process


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines that the library has logged as warnings or worse."""
    caplog.set_level(logging.WARNING, "rpcmq")
    return lambda: [record.getMessage() for record in caplog.records if record.name.startswith("rpcmq.")]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def timed(close: Callable[[], object]) -> float:
    began = monotonic()
    close()
    return monotonic() - began


def run(client: Client, compute: Compute, count: int = 5) -> None:
    """Casts and events that have run, and are known to have: an answer that came later was seen."""
    events: list[object] = []
    client.subscribe("news.#", lambda ctx, topic, payload: events.append(payload))
    for n in range(count):
        client.cast(None, "compute", message("note", value=n))
        client.publish(None, "news.a", n)
    eventually(lambda: len(compute.seen) == count and len(events) == count)
    caller, link = client.process.calls, client._links.event_link
    assert link is not None
    eventually(lambda: not caller.casts_at_risk and not link._casts.at_risk)


def test_beside_a_living_router_they_are_prompt_and_silent(daemon, said):
    compute = Compute()
    service = Service("compute", compute, router=daemon.url, linger_seconds=LONG)
    service.start()
    client = Client(daemon.url, linger_seconds=LONG)
    run(client, compute)
    client.cast(None, "compute", message("note", value="last"))
    client.publish(None, "news.a", "last")
    assert timed(client.close) < LONG / 2
    eventually(lambda: compute.seen[-1] == "last")
    assert timed(service.stop) < LONG / 2
    assert said() == []


def test_casts_and_events_that_have_run_are_not_waited_for_when_the_router_is_dead(daemon, said):
    compute = Compute()
    service = Service("compute", compute, router=daemon.url, linger_seconds=LONG)
    service.start()
    client = Client(daemon.url, linger_seconds=LONG)
    run(client, compute)
    daemon.kill()
    eventually(lambda: not client.process.connection.connected and not service.client.process.connection.connected)
    assert timed(client.close) + timed(service.stop) < LONG / 2
    assert said() == []


def test_what_a_dead_router_may_not_have_is_waited_for_once_and_said_once(daemon, said):
    client = Client(daemon.url, linger_seconds=LINGER)
    client.subscribe("news.#", print)
    client.cast(None, "compute", message("note", value=0))
    eventually(lambda: not client.process.casts.open)
    daemon.kill()
    eventually(lambda: not client.process.connection.connected)
    client.cast(None, "compute", message("note", value=1))
    client.cast(None, "compute", message("note", value=2))
    assert timed(client.close) < SECONDS
    (line,) = said()
    assert line.startswith(f"closed before the router {daemon.url} acknowledged 2 casts")
    assert "the router is not connected (nothing listens there)" in line


def test_a_silent_router_is_waited_for_once(daemon, said):
    # The router has the second that it is given anyhow to confirm the end of deliveries, and the connection as much.
    service = Service("compute", Compute(), router=daemon.url)
    service.start()
    with Client(daemon.url, linger_seconds=LINGER) as client:
        assert client.call(None, "compute", message("add", a=1, b=2)) == 3
        daemon.pause()
        try:
            took = timed(service.stop)
            assert took < SECONDS
            (line,) = said()
            assert (
                "the router has not confirmed that it delivers no more: the router is connected, and was last" in line
            )
            client.cast(None, "compute", message("note", value=1))
            assert timed(client.close) < SECONDS
            assert "acknowledged 1 cast" in said()[-1] and len(said()) == 2
        finally:
            daemon.resume()


def test_a_close_that_is_interrupted_leaves_nothing_open(daemon):
    before = open_files()
    client = Client(daemon.url)
    client.connect(20)
    daemon.pause()
    client.cast(None, "compute", message("note"))
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.2):
        client.close(linger_seconds=LONG)
    assert client.closed
    eventually(lambda: open_files() <= before)


@pytest.mark.parametrize("shell", ["gevent", "threads"])
def test_neither_a_thread_nor_a_worker_keeps_what_was_closed(daemon, shell):
    """The end of a thread would close it, had that not happened; and a worker waits for another request of it."""
    made: list[weakref.ref[Any]] = []
    for _ in range(2):
        service = Service("compute", Compute(), router=daemon.url, shell=shell)
        service.start()
        with Client(daemon.url, shell=shell) as client:
            client.subscribe("news.#", print)
            assert client.call(None, "compute", message("add", a=1, b=2)) == 3
        service.stop()
        made += [weakref.ref(each) for each in (client, client._links, service)]
        del client, service

    def are_gone() -> bool:
        gc.collect()
        return not any(reference() for reference in made)

    eventually(are_gone)


def test_close_can_be_told_how_long_to_wait(daemon, said):
    client = Client(daemon.url, linger_seconds=LONG)
    client.connect()
    daemon.kill()
    client.cast(None, "compute", message("note", value=1))
    assert timed(lambda: client.close(linger_seconds=0.0)) < LONG / 2
    assert len(said()) == 1


def test_a_router_that_is_busy_is_waited_for_longer_than_one_that_says_nothing(said):
    with rpcmq.testing.router(link_heartbeat_seconds=0.05) as router:
        handlers, shell = router._embedded.engine.kinds.handlers, router._embedded.shell
        unregister = handlers[Kind.UNREGISTER]

        def later(now: float, link: Link, message: bytes) -> None:
            def act() -> None:
                unregister(monotonic(), link, message)
                shell.wake()

            gevent.spawn_later(1.1, act)

        handlers[Kind.UNREGISTER] = later
        service = Service("compute", Compute(), router=router.url, linger_seconds=0.7)
        service.start()
        assert timed(service.stop) > 1.0
        assert said() == []


@pytest.mark.parametrize("shell", ["gevent", "auto"])
@pytest.mark.parametrize("silent", [False, True], ids=["dead", "silent"])
def test_the_end_of_a_program_waits_as_long_for_all_its_links_together(daemon, silent, shell):
    with Program(
        [sys.executable, "-c", _PROGRAM, daemon.url, str(LINGER)], {"RPCMQ_SHELL": shell}, "program"
    ) as program:
        program.expect("ready")
        if silent:
            daemon.pause()
        else:
            daemon.kill()
        program.tell("go on")
        began = monotonic()
        assert program.wait() == 0, program.said()
        # From Python 3.12 on no thread can be started so late: then one link is closed after the other.
        is_sequential = shell == "auto" and sys.version_info >= (3, 12)
        assert monotonic() - began < (SECONDS + LINGER if is_sequential else SECONDS)
        lines = [line for line in program.lines if "closed before the router" in line]
        assert sorted("1 cast, " in line for line in lines) == [False, True], program.said()
        assert sorted("1 event, " in line for line in lines) == [False, True], program.said()
        daemon.resume()


@pytest.mark.parametrize("shell", ["gevent", "threads"])
def test_a_process_that_ends_right_after_close_has_said_goodbye(router, shell):
    program = Path(__file__).parent / "programs" / "says_goodbye.py"
    with Program([sys.executable, "-W", "ignore", str(program), router.url, shell], name="goodbye") as children:
        children.expect("^ended True")
    # The link of one that has not is kept for 30 s.
    eventually(lambda: router.query("summary")["links"] == 0, 10)
