"""Clients and services that choose by themselves where they live, each in a program of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rpcmq.threads
from rpcmq import rpc
from rpcmq.errors import UsageError
from rpcmq.testing.processes import Program
from tests.client.endpoints import Compute

PROGRAM = Path(__file__).parent / "programs" / "chooses.py"
NO_GEVENT = (
    "shell = 'gevent' (a Service's own if nothing is said): gevent cannot be imported (import of gevent halted; None "
    "in sys.modules); install gevent, or use plain threads: RPCMQ_SHELL=threads, or rpcmq.threads"
)
PATCHED_LATER = (
    "gevent or eventlet has patched this process after this client was made in it: what waits here would hold up all "
    "its green threads; patch first, or make a new client"
)
MET = "['met', 'met', 'met'] 1"


def said(url: str, kind: str, shell: str = "") -> list[str]:
    environment = {"PYTHONWARNINGS": "ignore", **({"RPCMQ_SHELL": shell} if shell else {})}
    with Program([sys.executable, str(PROGRAM), url, kind], environment, name=kind) as program:
        assert program.wait(60) == 0, program.said()
        return program.lines


def test_a_plain_program_is_at_home_in_threads_and_never_imports_gevent(router):
    assert said(router.url, "plain") == [NO_GEVENT, "client ThreadHome True", "3", MET]
    assert said(router.url, "plain", "threads") == ["service ThreadHome", "client ThreadHome True", "3", MET]
    with Program([sys.executable, str(PROGRAM), router.url, "plain"], {"RPCMQ_SHELL": "gevent"}) as program:
        assert program.wait(60) == 1
        assert NO_GEVENT in program.said()


def test_a_program_with_a_hub_or_that_gevent_has_patched_is_at_home_in_gevent(router):
    assert said(router.url, "gevent") == ["service GeventHome", "client GeventHome True", "3", MET]
    assert said(router.url, "hub") == ["service GeventHome", "client GeventHome True", MET]


@pytest.mark.parametrize("kind", ["gevent", "hub"])
def test_plain_threads_can_be_asked_for_in_a_program_of_gevent(router, kind):
    assert said(router.url, kind, "threads") == [
        "service ThreadHome", "client ThreadHome True", *(["3"] if kind == "gevent" else []), MET
    ]  # fmt: skip


def test_a_program_that_eventlet_has_patched_is_at_home_in_threads_of_its_own_kind(router):
    assert said(router.url, "eventlet") == ["service ThreadHome", "client ThreadHome True", "3", MET]


def test_a_program_that_is_patched_after_its_first_call_gets_a_new_default_client_and_no_hang(router):
    # Python itself may complain of threads that were there before they became green.
    assert said(router.url, "later")[:4] == ["3 3", PATCHED_LATER, "ThreadHome GeventHome 4", "True"]


def test_a_program_that_eventlet_patches_after_its_first_call_gets_a_new_default_client(router, serve):
    serve(Compute())
    assert said(router.url, "eventlet later") == ["[0, 1, 2]", "ThreadHome True True"]


def test_green_threads_of_eventlet_can_be_the_first_to_use_rpcmq_all_at_once(router, serve):
    serve(Compute())
    program = """
import eventlet
eventlet.monkey_patch()
from rpcmq import rpc
calls = [eventlet.spawn(rpc.call, None, "compute", {"method": "add", "args": {"a": n}}, 20) for n in range(3)]
print([call.wait() for call in calls])
"""
    with Program([sys.executable, "-c", program], {"RPCMQ_ROUTER": router.url, "PYTHONWARNINGS": "ignore"}) as running:
        assert running.wait(60) == 0, running.said()
        assert running.lines == ["[0, 1, 2]"]


@pytest.mark.parametrize("first", ["green", "pool"])
@pytest.mark.parametrize("kind", ["eventlet", "gevent"])
def test_threads_of_a_pool_call_beside_the_green_ones_of_a_patched_program(router, serve, kind, first):
    serve(Compute())
    program = """
import sys
if sys.argv[1] == "eventlet":
    import eventlet
    eventlet.monkey_patch()
    from eventlet.tpool import execute as in_pool
else:
    from gevent import get_hub, monkey
    monkey.patch_all()
    def in_pool(function):
        return get_hub().threadpool.apply(function)
import threading
from rpcmq import threads
client = threads.Client()
def add():
    return client.call(None, "compute", {"method": "add", "args": {"a": 1}}, 50)
def add_in_pool():
    return in_pool(add)
kinds = [add, add_in_pool] if sys.argv[2] == "green" else [add_in_pool, add]
print([call() for call in kinds])
answers = []
callers = [threading.Thread(target=lambda call=call: answers.append(call())) for call in kinds * 4]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
print(answers)
client.close()
"""
    command = [sys.executable, "-c", program, kind, first]
    with Program(command, {"RPCMQ_ROUTER": router.url, "PYTHONWARNINGS": "ignore"}) as running:
        assert running.wait(60) == 0, running.said()
        assert running.lines == ["[1, 1]", str([1] * 8)]


def test_calls_of_a_thread_that_ends_while_its_greenlets_wait_end_when_they_are_due(router, serve):
    serve(Compute())
    assert said(router.url, "ended") == ["client ThreadHome", "ended 0"]


def test_a_client_of_rpcmq_threads_can_be_the_default(router, serve):
    serve(Compute())
    with rpcmq.threads.Client(router.url) as client:
        before = rpc.configure(client)
        try:
            assert rpc.call(None, "compute", {"method": "add", "args": {"a": 1}}, 20) == 1
        finally:
            rpc.configure(before)


def test_a_service_of_rpcmq_threads_is_refused_a_client_in_gevent(router):
    with rpcmq.Client(router.url) as client, pytest.raises(UsageError, match="lives in gevent: a service of"):
        rpcmq.threads.Service("compute", Compute(), client=client)
