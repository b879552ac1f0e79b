"""``rpcmq.threads`` in programs that cannot import gevent: verbs, forks, signals, the end, and a router that goes."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.client.endpoints import Compute
from tests.keys import Folder, right

PROGRAM = Path(__file__).parent / "programs" / "plain.py"


def start(url: str, scenario: str, *arguments: str) -> Program:
    # From Python 3.12 on every fork of a process with threads, such as ZeroMQ's, is warned about.
    quiet = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}
    return Program([sys.executable, str(PROGRAM), url, scenario, *arguments], quiet, name=scenario)


def test_every_verb_without_gevent(router):
    with start(router.url, "verbs") as program:
        assert program.wait(60) == 0, program.said()
    assert program.lines == [
        "3",
        "1",
        "met False",
        "ValueError",
        "RemoteError",
        "UnknownMethod",
        "1",
        "True",
        "0 1",
        "back-pressure True",
        "True ['half']",
        "1",
        "cancelled True",
        "n 3",
        "this client is closed",
        "False",
    ]


def test_keys_groups_and_direct_calls_without_gevent(tmp_path):
    folder = Folder(tmp_path)
    keys = [folder.add("node"), folder.add("web"), folder.add("guest", right("call", "image"))]
    with (
        rpcmq.testing.router(security_keys=str(folder)) as router,
        start(router.url, "with_keys", *keys) as program,
    ):
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["[0, 1, 2, 3, 4]", "{}", "denied", "denied"]


def test_many_threads_share_a_client(router):
    with start(router.url, "many_threads") as program:
        assert program.wait(90) == 0, program.said()
        assert program.lines == ["[] 2000 2 0"]


def test_a_thread_that_ends_in_the_middle_of_a_stream_leaves_nothing(router):
    with start(router.url, "ended_threads") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["1 {}"]


def test_parent_and_child_of_a_fork_use_the_client_that_both_have(router, held):
    with start(router.url, "forks") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["1", "2 True", "3", "child 0", "4 True", "['held'] 0"]


def test_a_signal_ends_a_call_and_cancels_it(router, held):
    with start(router.url, "interrupted") as program:
        program.expect("calling")
        assert held.started.wait(20)
        program.signal(signal.SIGINT)
        program.expect("interrupted")
        assert program.wait(30) == 0, program.said()
        assert program.lines[-1] == "1"
    eventually(lambda: held.ended == ["cancelled"])


def test_signals_at_any_moment_leave_the_client_whole(router, held):
    with start(router.url, "interrupted_often") as program:
        assert program.wait(90) == 0, program.said()
        assert program.lines == ["1", "nothing left"]


def test_a_program_that_computes_is_not_called_unresponsive():
    with (
        rpcmq.testing.router(link_heartbeat_seconds=0.5, link_unresponsive_seconds=3.0) as router,
        rpcmq.Service("compute", Compute(), host="n", router=router.url),
        start(router.url, "computes") as program,
    ):
        identity = program.expect("computing 1 (.*)")[1]
        states: set[str] = set()
        for _ in range(45):  # half as long again as what makes a process unresponsive
            gevent.sleep(0.1)
            states |= {p["state"] for p in router.query("processes")["processes"] if p["identity"] == identity}
        program.kill()
    assert states == {"answering"}


def test_casts_of_a_program_that_ends_with_a_full_window_arrive(router, client, held):
    events: list[Any] = []
    client.subscribe("#", lambda ctx, topic, payload: events.append(topic))
    with start(router.url, "ends_with_casts") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == []
    eventually(lambda: sorted(held.seen) == list(range(1000)))
    eventually(lambda: events == ["last"])


def test_threads_that_wait_do_not_keep_a_program_from_its_end(router, held):
    with start(router.url, "ends_with_waiting_threads") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["ends"]


def test_a_program_that_leaves_direct_links_open_ends_in_silence(router):
    with start(router.url, "ends_with_direct_links") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["1 {}"]


def test_the_end_of_a_program_whose_router_is_away_says_what_may_be_lost():
    with RouterProcess() as router, start(router.url, "ends_without_router") as program:
        program.expect("connected")
        router.kill()
        program.tell("go on")
        assert program.wait(60) == 0, program.said()
        program.expect("10 casts, which may be lost")


def test_the_window_of_casts_holds_for_large_ones():
    with RouterProcess() as router, start(router.url, "large_casts") as program:
        program.expect("connected")
        router.kill()
        program.tell("go on")
        program.expect("4 cast_window_bytes")
        assert program.wait(60) == 0, program.said()


def test_threads_that_cast_at_once_keep_to_the_window_together(router, held):
    with start(router.url, "many_casting_threads") as program:
        assert program.wait(60) == 0, program.said()
        assert int(program.expect("most (.*)")[1]) <= 10
    eventually(lambda: len(held.seen) == 400)


def test_a_service_of_threads_is_stopped_by_a_signal(router, client):
    with start(router.url, "serves") as program:
        program.expect("serving")
        assert client.call(None, "compute", {"method": "add", "args": {"a": 1, "b": 2}}) == 3
        program.signal(signal.SIGTERM)
        assert program.wait(30) == 0, program.said()
        assert program.lines[-1] == "stopped"


def test_the_client_and_the_service_outlive_a_router_that_is_killed():
    with (
        RouterProcess(router_recovery_seconds=0.5) as router,
        start(router.url, "serves") as service,
        start(router.url, "calls_through_restarts") as caller,
    ):
        service.expect("serving")
        caller.expect("done 20", 40)
        for _ in range(2):
            router.kill()
            router.restart()
            before = len(caller.lines)
            eventually(lambda: any("done" in line for line in caller.lines[before + 1 :]), 40)  # noqa: B023
        caller.kill()
        service.signal(signal.SIGTERM)
        assert service.wait(30) == 0, service.said()


def start_green(kind: str, url: str, scenario: str) -> Program:
    if kind and find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed")
    return Program([sys.executable, "-W", "ignore", str(PROGRAM.with_name("green.py")), kind, url, scenario])


@pytest.mark.parametrize("kind", ["gevent", "eventlet"])
def test_green_threads_wait_without_holding_up_one_another(router, kind):
    with start_green(kind, router.url, "green") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["1", "{'met'} 20 True", "True", "timeout 0"]


@pytest.mark.parametrize("kind", ["gevent", "eventlet"])
def test_the_thread_of_the_sockets_does_not_wait_for_a_green_lock_of_logging(router, kind):
    with start_green(kind, router.url, "logs") as program:
        program.expect("answered", 60)
        eventually(lambda: sum("not delivered" in line for line in program.lines) >= 20, 60)
        program.kill()


@pytest.mark.parametrize("kind", ["gevent", "eventlet"])
@pytest.mark.long
def test_children_of_a_patched_program_take_nothing_from_it(router, kind):
    with start_green(kind, router.url, "forks") as program:
        assert program.wait(60) == 0, program.said()
        # Copies of gevent's green threads that end in a child print a KeyError of the module threading there.
        assert [line for line in program.lines if line in ("1", "{1}", "[0, 0, 0]")] == ["1", "{1}", "[0, 0, 0]"]


def test_a_program_that_is_patched_later_is_told(router):
    with start_green("", router.url, "later") as program:
        assert program.wait(60) == 0, program.said()
        assert "has patched this process after this client was made in it" in program.said()
