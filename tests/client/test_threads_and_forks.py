"""Threads, forks, monkey-patching and the end of the interpreter, each in a process of its own."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq import rpc
from rpcmq.client import Client
from rpcmq.errors import UsageError
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program
from tests.client.endpoints import Compute, message

PROGRAMS = Path(__file__).parent / "programs"


def start(name: str, *arguments: str) -> Program:
    # From Python 3.12 on every fork of a process with threads, such as ZeroMQ's, is warned about.
    quiet = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}
    return Program([sys.executable, str(PROGRAMS / name), *arguments], quiet, name=name)


# --- threads ------------------------------------------------------------------------------------


def in_thread(function: Any, *args: Any, **options: Any) -> Any:
    """What ``function`` returns or raises in another OS thread."""
    return gevent.get_hub().threadpool.apply(function, args, options)


def test_another_thread_is_told_so_by_every_verb(client, serve):
    serve(Compute())
    client.connect()
    subscription = client.subscribe("a", print)
    verbs: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (client.call, (None, "compute", message("add", a=1)), {}),
        (client.call, (None, "compute", message("add", a=1)), {"retry": 3}),
        (client.call, (None, "compute", message("add", a=1)), {"direct": True}),
        (client.cast, (None, "compute", message("note")), {}),
        (client.cast, (None, "compute", message("note")), {"confirm": True}),
        (client.fanout_cast, (None, "compute", message("note")), {}),
        (client.multicall, (None, "compute", message("count", n=1)), {}),
        (client.publish, (None, "a", 1), {}),
        (client.notify, (None, "a", 1), {}),
        (client.subscribe, ("b", print), {}),
        (client.query, (), {}),
        (client.describe, ("compute",), {}),
        (client.connect, (), {}),
        (client.close, (), {}),
    ]
    for verb, args, options in verbs:
        with pytest.raises(UsageError, match="belongs to another OS thread; make a Client of its own"):
            in_thread(verb, *args, **options)
    assert client.call(None, "compute", message("add", a=1)) == 1
    subscription.close()


def test_a_thread_that_subscribes_first_does_not_take_the_link_over(client):
    with pytest.raises(UsageError, match="another OS thread"):
        in_thread(client.subscribe, "a", print)
    seen: list[Any] = []
    client.subscribe("a", lambda ctx, topic, payload: seen.append(payload))
    client.publish(None, "a", 1)
    eventually(lambda: seen == [1])


def test_threads_that_keep_trying_corrupt_nothing(client, serve):
    serve(Compute())
    client.connect()
    done = threading.Event()
    errors: list[BaseException] = []

    def try_it() -> None:
        while not done.wait(0.001):
            for verb in (client.call, client.cast):
                try:
                    verb(None, "compute", message("add", a=1))
                except BaseException as error:
                    errors.append(error)

    threads = [threading.Thread(target=try_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        calls = [client.call(None, "compute", message("add", a=n)) for n in range(100)]
    finally:
        done.set()
        for thread in threads:
            thread.join(10)
    assert calls == list(range(100))
    assert errors and all(type(error) is UsageError for error in errors)


def test_a_thread_with_a_client_of_its_own(router, serve):
    serve(Compute())

    def calls() -> list[Any]:
        with Client(router.url) as client:
            return [client.call(None, "compute", message("add", a=n)) for n in range(100)]

    assert in_thread(calls) == list(range(100))


def test_the_module_level_verbs_belong_to_the_thread_that_used_them_first(router, serve):
    serve(Compute())
    assert rpc.call(None, "compute", message("add", a=1)) == 1
    with pytest.raises(UsageError, match="another OS thread"):
        in_thread(rpc.call, None, "compute", message("add", a=1))


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


def test_a_child_does_not_listen_to_the_sockets_of_its_parent():
    with start("fork_beside_a_router.py") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["children [0, 0, 0]", "wake-ups lost 0 0"]


# --- monkey-patching ----------------------------------------------------------------------------


def test_with_and_without_monkey_patching_all_is_the_same():
    with start("every_verb.py", "plain") as plain, start("every_verb.py", "patched") as patched:
        assert plain.wait(60) == 0, plain.said()
        assert patched.wait(60) == 0, patched.said()
        assert plain.lines == patched.lines
        assert plain.lines[:6] == ["3", "ValueError", "CallTimeout", "NoConsumer", "CallTimeout", "UsageError"]


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
    assert compute.seen == list(range(300))
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
        assert "has not taken 1 messages" in program.said()
