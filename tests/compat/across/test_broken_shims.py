"""Eleven ways in which a shim can be wrong and ordinary tests in one process stay green; a test for each.

``tests/compat/mutations.py`` breaks a copy of the shim in each of these ways and has the test fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rpcmq.testing import eventually
from tests.compat.across.interpreter import Interpreter, Raised

pytestmark = pytest.mark.integration

SERVICE = """
import services
from nova import rpc
"""
CALLER = """
from nova import context, rpc
ctxt = context.get_admin_context()
def call(name, topic, **args): return rpc.call(ctxt, topic, {"method": name, "args": args}, 10)
def cast(name, topic, **args): rpc.cast(ctxt, topic, {"method": name, "args": args})
def fanout(name, topic, **args): rpc.fanout_cast(ctxt, topic, {"method": name, "args": args})
"""


@pytest.fixture(scope="module")
def processes(program: Callable[..., Interpreter]) -> list[Interpreter]:
    """The caller and two services."""
    started = [program("essex", CALLER), program("essex", SERVICE), program("essex", SERVICE)]
    return [each.ready() for each in started]


@pytest.fixture
def caller(processes: list[Interpreter]) -> Interpreter:
    return processes[0]


@pytest.fixture
def hosts(processes: list[Interpreter], topic: str) -> Iterator[list[Interpreter]]:
    """Both serve ``topic``, each with a manager that has seen nothing."""
    hosts = processes[1:]
    for number, each in enumerate(hosts, 1):
        code = "manager = type(manager)(); stop = services.essex(topic, host, manager)"
        each.run(code, topic=topic, host=f"h{number}")
    yield hosts
    for each in hosts:
        each.run("stop()")


def seen(hosts: list[Interpreter]) -> list[list[Any]]:
    """The notes of each host."""
    return [host.run("manager.seen") for host in hosts]


def test_handlers_run_side_by_side(caller, hosts, topic):
    """Each waits until the last one has come."""
    calls = [caller.start("call('wait', topic, gate='g')", topic=f"{topic}.h1") for _ in range(3)]
    hosts[0].until("manager.started", ["g"] * 3)
    caller.run("call('open', topic, gate='g')", topic=f"{topic}.h1")
    assert [caller.result(each) for each in calls] == [None] * 3


def test_one_consumer_of_a_topic_gets_a_message(caller, hosts, topic):
    caller.run("for n in range(8): cast('note', topic, value=n)", topic=topic)
    eventually(lambda: sum(map(len, seen(hosts))) >= 8)
    # Later than any further copy on its way to one of them.
    for number in (1, 2):
        caller.run("call('add', topic, a=1, b=1)", topic=f"{topic}.h{number}")
    first, second = seen(hosts)
    assert sorted(first + second) == [*range(8)]
    assert len(first) == len(second) == 4


def test_a_request_is_run_once(caller, hosts, topic):
    caller.run("call('note', topic, value='call')", topic=f"{topic}.h1")
    caller.run("cast('note', topic, value='cast')", topic=f"{topic}.h1")
    hosts[0].until("manager.seen[1:2]", ["cast"])
    caller.run("fanout('note', topic, value='fanout')", topic=topic)
    hosts[0].until("manager.seen[2:3]", ["fanout"])
    caller.run("call('note', topic, value='end')", topic=f"{topic}.h1")
    assert seen(hosts[:1]) == [["call", "cast", "fanout", "end"]]


def test_what_is_for_a_host_goes_to_that_host_alone(caller, hosts, topic):
    caller.run("for n in range(4): cast('note', topic, value=n)", topic=f"{topic}.h1")
    caller.run("for n in range(4, 8): call('note', topic, value=n)", topic=f"{topic}.h1")
    eventually(lambda: len(hosts[0].run("manager.seen")) >= 8)
    # Two calls to the topic come to both, after whatever else was sent there.
    caller.run("call('add', topic, a=1, b=1), call('add', topic, a=1, b=1)", topic=topic)
    first, second = seen(hosts)
    assert (sorted(first), second) == ([*range(8)], [])


def test_the_green_thread_of_a_handler_knows_its_context(caller, program, topic):
    """In Folsom, where the context of a handler does not see to that itself, as Essex's did when it was made."""
    code = """
    import services
    from nova.openstack.common import local

    def stored(context):
        return getattr(getattr(local.store, "context", None), "request_id", None)

    manager.stored = stored
    stop = services.folsom(topic, "h1", manager)
    """
    host = program("folsom")
    host.run(code, topic=topic)
    for _ in range(2):
        sent = caller.run("ctxt = context.get_admin_context(); ctxt.request_id")
        assert caller.run("call('stored', topic)", topic=topic) == sent
    host.run("stop()")


def test_a_notification_is_kept_for_the_first_consumer_that_comes(caller, processes, topic):
    caller.run("for n in range(3): rpc.notify(ctxt, topic, {'event_type': 'e', 'n': n})", topic=f"{topic}.info")
    processes[1].run(
        """
        got = []
        listening = rpc.create_connection(new=True)
        listening.declare_topic_consumer(topic, got.append)
        listening.consume_in_thread()
        """,
        topic=f"{topic}.info",
    )
    processes[1].until("[message['n'] for message in got]", [0, 1, 2])
    processes[1].run("listening.close()")


def test_the_context_is_passed_by_its_name(caller, hosts, topic):
    a, request_id = caller.run("call('context_last', topic, a=7)", topic=topic)
    assert (a, request_id) == (7, caller.run("ctxt.request_id"))


def test_what_cannot_be_sent_is_an_error_at_the_caller(caller, hosts, topic):
    with pytest.raises(Raised, match=r"args\.value\[1\]") as raised:
        caller.run("call('note', topic, value=[1, object()])", topic=f"{topic}.h1")
    assert raised.value.kind == "TypeError"
    with pytest.raises(Raised, match=r"args\.value") as raised:
        caller.run("cast('note', topic, value=object())", topic=f"{topic}.h1")
    assert raised.value.kind == "TypeError"
    with pytest.raises(Raised, match="thing") as raised:
        caller.run("call('unserializable', topic)", topic=f"{topic}.h1")
    assert raised.value.attributes["exc_type"] == "TypeError"
    caller.run("call('note', topic, value='end')", topic=f"{topic}.h1")
    assert seen(hosts[:1]) == [["end"]]


def test_a_fanout_reaches_every_consumer(caller, hosts, topic):
    caller.run("fanout('note', topic, value='all')", topic=topic)
    for host in hosts:
        host.until("manager.seen", ["all"])


def test_an_unknown_method_is_an_error(caller, hosts, topic):
    with pytest.raises(Raised, match="no_such_method") as raised:
        caller.run("call('no_such_method', topic)", topic=topic)
    assert raised.value.attributes["exc_type"] == "AttributeError"


def test_a_proxy_is_not_touched_before_a_message_comes(processes, topic):
    """As in Nova's own test of consumers: an AssertionError is no AttributeError, so hasattr lets it through."""
    code = """
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(f"{name} was looked at")

    conn = rpc.create_connection(new=True)
    for fanout in (False, True):
        conn.create_consumer(topic, Untouchable(), fanout=fanout)
    conn.create_worker(topic, Untouchable(), "pool")
    conn.consume_in_thread()
    conn.close()
    """
    assert processes[1].run(code, topic=topic) is None
