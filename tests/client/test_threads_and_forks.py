"""Threads, forks, monkey-patching and the end of the interpreter, each in a process of its own."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq import rpc
from rpcmq.client import Client, current_request
from rpcmq.errors import UsageError
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program
from tests.client.endpoints import Compute, message, topic
from tests.from_threads import ordered

PROGRAMS = Path(__file__).parent / "programs"


def start(name: str, *arguments: str) -> Program:
    # From Python 3.12 on every fork of a process with threads, such as ZeroMQ's, is warned about.
    quiet = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}
    return Program([sys.executable, str(PROGRAMS / name), *arguments], quiet, name=name)


# --- threads ------------------------------------------------------------------------------------


def in_thread(function: Any, *args: Any, **options: Any) -> Any:
    """Run ``function`` in another OS thread; return its result or raise its exception."""
    return gevent.get_hub().threadpool.apply(function, args, options)


def test_every_verb_works_in_another_thread(client, serve):
    compute = Compute()
    serve(compute)
    client.connect()
    subscription = client.subscribe("a", print)
    assert in_thread(client.call, None, "compute", message("add", a=1)) == 1
    assert in_thread(client.call, None, "compute", message("add", a=1), retry=3) == 1
    assert in_thread(client.call, None, "compute", message("add", a=1), direct=True) == 1
    in_thread(client.cast, None, "compute", message("note", value=1))
    in_thread(client.cast, None, "compute", message("note", value=2), confirm=True)
    assert in_thread(client.fanout_cast, None, "compute", message("note", value=3), confirm=True) == 1
    eventually(lambda: ordered(compute.seen) == [1, 2, 3])
    assert in_thread(lambda: list(client.multicall(None, "compute", message("count", n=40)))) == list(range(40))
    assert in_thread(client.publish, None, "a", 1, confirm=True) == 1
    in_thread(client.notify, None, "a", 1)
    in_thread(in_thread_subscribed, client)
    assert in_thread(client.query, "summary")["links"] >= 2
    assert in_thread(client.describe, "compute")["topic"] == "compute"
    with pytest.raises(ValueError, match="x"):
        in_thread(client.call, None, "compute", message("fail"))
    in_thread(client.connect)
    in_thread(subscription.close)
    in_thread(client.close)
    with pytest.raises(UsageError, match="this client is closed"):
        client.call(None, "compute", message("add", a=1))


def in_thread_subscribed(client: Client) -> None:
    seen: list[Any] = []
    subscription = client.subscribe("b", lambda ctx, topic, payload: seen.append(payload))
    client.publish(None, "b", 1, confirm=True)
    eventually(lambda: seen == [1])
    subscription.close()


def test_a_call_that_is_given_up_in_another_thread_is_cancelled(router, client, serve):
    compute = Compute()
    serve(compute)

    def give_up() -> None:
        with contextlib.suppress(gevent.Timeout), gevent.Timeout(0.05):
            client.call(None, "compute", message("until_cancelled"), 30)

    in_thread(give_up)
    eventually(lambda: compute.ended == ["cancelled"])


@pytest.mark.own_hub
def test_a_thread_is_told_when_the_hub_of_the_client_does_not_run(client, serve, monkeypatch):
    serve(Compute())
    client.connect()
    monkeypatch.setattr("rpcmq.transport.gevent_home._PATIENCE", 0.05)
    told: list[BaseException] = []

    def call() -> None:
        try:
            client.call(None, "compute", message("add", a=1))
        except UsageError as error:
            told.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20)  # blocks this thread, and so its hub
    assert "has not run its gevent hub for 0.05 s" in str(told)
    assert client.call(None, "compute", message("add", a=1)) == 1


def test_a_client_of_a_thread_that_has_ended_is_closed_with_it(router, client):
    made: list[Client] = []

    def make() -> None:
        gevent.sleep(0)  # this thread has a hub of its own
        made.append(Client(router.url))
        made[0].connect()

    client.connect()
    thread = threading.Thread(target=make)
    thread.start()
    eventually(lambda: not thread.is_alive())
    eventually(lambda: router.query("summary")["links"] == 1)
    with pytest.raises(UsageError, match="has ended; make a new Client"):
        made[0].call(None, "compute", message("add", a=1))


def test_a_client_that_is_dropped_is_closed(router, client):
    def drop() -> None:
        dropped = Client(router.url)
        dropped.connect()
        dropped.cast(None, "kept", message("note"))

    client.connect()
    drop()
    eventually(lambda: router.query("summary")["links"] == 1)
    assert topic(router, "kept")["queued"] == 1


def test_a_thread_with_a_client_of_its_own(router, serve):
    serve(Compute())

    def calls() -> list[Any]:
        with Client(router.url) as client:
            return [client.call(None, "compute", message("add", a=n)) for n in range(100)]

    assert in_thread(calls) == list(range(100))


def test_the_module_level_verbs_work_in_each_thread(router, serve):
    serve(Compute())
    assert rpc.call(None, "compute", message("add", a=1)) == 1
    assert in_thread(rpc.call, None, "compute", message("add", a=2)) == 2
    assert in_thread(rpc.client) is rpc.client()


def test_the_default_client_of_a_thread_that_has_ended_is_made_anew(router, serve):
    serve(Compute())

    def first() -> None:
        gevent.sleep(0)
        assert rpc.call(None, "compute", message("add", a=1)) == 1

    thread = threading.Thread(target=first)
    thread.start()
    eventually(lambda: not thread.is_alive())
    assert rpc.call(None, "compute", message("add", a=2)) == 2


# --- programs without gevent --------------------------------------------------------------------


class Reporting(Compute):
    def report(self, ctx: Any, n: int) -> None:
        request = current_request()
        assert request is not None
        for each in range(n):
            request.progress(each)

    def release(self, ctx: Any) -> None:
        self.go_on.set()


def test_casts_and_events_of_a_plain_program_are_on_their_way_when_the_verb_returns(router, client, serve):
    compute = Compute()
    serve(compute)
    events: list[Any] = []
    client.subscribe("#", lambda ctx, topic, payload: events.append(topic))
    with start("without_gevent.py", router.url, "casts") as program:
        program.expect("sent")
        eventually(lambda: ordered(compute.seen) == list(range(20)))
        eventually(lambda: events == ["a.b", "notifications.info.c.d"])
        program.kill()


@pytest.mark.parametrize("kind", ["rpc", "patched"])
@pytest.mark.parametrize("how", ["confirm", "close"])
def test_a_program_that_ends_by_os_exit_has_handed_over_what_it_confirmed_or_closed(router, serve, kind, how):
    compute = Compute()
    serve(compute)
    with start("ends_by_os_exit.py", router.url, kind, how) as program:
        assert program.wait(60) == 0, program.said()
    eventually(lambda: compute.seen == [how])


@pytest.mark.parametrize("shell", ["gevent", "auto"])
def test_they_are_also_where_the_client_lives_in_gevent_and_nobody_turns_the_hub(router, serve, shell):
    compute = Compute()
    serve(compute)
    environment = {"RPCMQ_SHELL": shell}
    with Program([sys.executable, str(PROGRAMS / "without_gevent.py"), router.url, "casts"], environment) as program:
        program.expect("sent")
        eventually(lambda: ordered(compute.seen) == list(range(20)))
        program.kill()


def test_a_plain_program_that_computes_answers_heartbeats():
    with (
        rpcmq.testing.router(link_heartbeat_seconds=0.5, link_unresponsive_seconds=3.0) as router,
        rpcmq.Service("compute", Compute(), host="n", router=router.url),
        start("without_gevent.py", router.url, "computes") as program,
    ):
        identity = program.expect("computing (.*)")[1]
        states: set[str] = set()
        for _ in range(45):  # half as long again as what makes a process unresponsive
            gevent.sleep(0.1)
            states |= {p["state"] for p in router.query("processes")["processes"] if p["identity"] == identity}
        program.kill()
    assert states == {"answering"}


SAID = {
    "threads": ["True", "True", "2"],
    "ended_threads": ["nothing left"],
    "verbs": [
        "True",
        "[(0, True), (1, True), (2, True)]",
        "1 []",
        "[('slow.a', 0, 0), ('slow.a', 1, 1), ('slow.a', 2, 2)]",
        "ValueError ('x', 7)",
        "UsageError",
        "this client is closed",
        "2",
    ],
    "loop": ["[0, 1, 2, 3, 4]", "7"],
    "gevent_later": ["1", "2", "pong", "['held', 'held', 'held']"],
    "forks": ["1", "0 2", "0 2", "0 2"],
    "forks_after_a_service": ["1", "4", "3", "0 2"],
    "forks_beside_a_service": ["1", "0 2 3", "0"],
    "ends_slowly_beside_a_service": ["1", "3"],
}


@pytest.mark.parametrize("scenario", SAID)
def test_a_plain_program(router, serve, scenario):
    serve(Reporting())
    with start("without_gevent.py", router.url, scenario) as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == SAID[scenario]


def test_ctrl_c_ends_a_call_of_a_plain_program_and_cancels_it(router, serve):
    compute = Compute()
    serve(compute)
    with start("without_gevent.py", router.url, "interrupted") as program:
        program.expect("calling")
        assert compute.started.wait(20)
        program.signal(signal.SIGINT)
        program.expect("interrupted")
        compute.go_on.set()
        assert program.wait(30) == 0, program.said()
        assert program.lines[-1] == "1"


def test_a_service_of_a_plain_program_runs_handlers_that_block_in_threads(router, serve):
    serve(Compute())
    with start("without_gevent.py", router.url, "service") as program:
        program.expect("serving", 40)
        said = [line for line in program.lines if "that ends this request and not the service" not in line]
        assert said[:3] == ["['met', 'met', 'met', 'met']", "(3, True) ['half']", "True"]
        # The log writes its line and the line's end separately, and the program may write in between.
        assert "RemoteError" in program.said()
        program.signal(signal.SIGTERM)
        assert program.wait(30) == 0, program.said()
        assert program.lines[-1] == "stopped"


# --- forks --------------------------------------------------------------------------------------


class Held(Compute):
    def release(self, ctx: Any) -> None:
        self.go_on.set()


@pytest.mark.parametrize("how", ["fork", "patched-fork", "multiprocessing"])
def test_a_forked_child_makes_its_own_connection_and_leaves_its_parents_alone(router, serve, how):
    held = Held()
    serve(held)
    with start("forks.py", router.url, how) as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == [
            "children [0, 0, 0]",
            "parent [0, 1, 2, 3, 4]",
            "held held",
            "wake-ups lost 0",
        ]
    assert held.seen == ["child"] * 3
    eventually(lambda: router.query("summary")["links"] == 1)


@pytest.mark.parametrize("kind", ["rpc", "patched"])
def test_a_child_is_refused_the_stream_of_its_parent_and_leaves_it_whole(router, serve, kind):
    serve(Compute())
    refused = "child this belongs to a client of the process that has forked this one; make it anew here"
    with start("forked_stream.py", router.url, kind) as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["parent 0", refused, refused, "child 1", "ended 0", "parent True 1"]


@pytest.mark.parametrize("kind", ["rpc", "patched"])
@pytest.mark.parametrize("how", ["process", "thread", "pool", "executor", "forkserver", "spawn"])
def test_the_last_casts_of_a_child_of_multiprocessing_arrive(router, serve, kind, how):
    if kind == "patched" and how in ("pool", "executor"):
        pytest.skip("multiprocessing.Pool does not work in a program that gevent has patched")
    compute = Compute()
    serve(compute)
    with start("ends_as_child.py", router.url, kind, how) as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == [f"ended {[] if how in ('pool', 'executor') else [0, 0, 0]}"]
    eventually(lambda: sorted(compute.seen) == [0, 1, 2])
    # Each has said goodbye.
    eventually(lambda: router.query("summary")["links"] == 1)


def test_a_child_does_not_listen_to_the_sockets_of_its_parent():
    with start("fork_beside_a_router.py") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["children [0, 0, 0]", "wake-ups lost 0 0"]


# --- monkey-patching ----------------------------------------------------------------------------


def test_with_and_without_monkey_patching_all_is_the_same():
    with start("every_verb.py", "plain") as plain, start("every_verb.py", "patched") as patched:
        assert plain.wait(60) == 0, plain.said()
        assert patched.wait(60) == 0, patched.said()
        # The service logs what its methods raise, when it knows whose call it was.
        said, also_said = (
            [line for line in program.lines if not line.startswith("call ")] for program in (plain, patched)
        )
        assert said == also_said
        assert said[:6] == ["3", "ValueError", "CallTimeout", "NoConsumer", "CallTimeout", "UsageError"]


# --- the end of the interpreter -----------------------------------------------------------------


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 3), ("raise", 1), ("interrupt", 1)])
def test_what_a_program_casts_before_it_ends_arrives(router, client, serve, how, code):
    compute = Compute()
    serve(compute)
    events: list[Any] = []
    client.subscribe("#", lambda ctx, topic, payload: events.append(payload))
    with start("exit_at_once.py", router.url, "300", how) as program:
        assert program.wait(60) in (code, -2, 130), program.said()
    eventually(lambda: len(compute.seen) == 300)
    assert ordered(compute.seen) == list(range(300))
    eventually(lambda: events == ["last"])

    def nobody_else() -> bool:
        # It said goodbye: nothing is kept for its return.
        rows = router.query("processes")["processes"]
        assert len(rows) == 2, (rows, program.said())
        return True

    assert eventually(nobody_else)


def test_a_program_ends_in_bounded_time_though_its_router_is_gone():
    with rpcmq.testing.router() as router:
        program = start("exit_late.py", router.url)
        program.expect("ready")
    with program:
        program.tell("go")
        assert program.wait(30) == 0, program.said()
        assert "acknowledged 1 cast" in program.said()
