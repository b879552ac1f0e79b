"""Pools of workers, queues that outlive their consumers, notifications, clean-up: several processes at one topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.testing import eventually
from tests.compat.across.interpreter import Interpreter

pytestmark = pytest.mark.integration

FIRST = """
import gevent
from nova import context, rpc
from nova.openstack.common.rpc import dispatcher
ctxt = context.get_admin_context()
seen = []
def connection(): return rpc.create_connection(new=True)
def note(topic, value): rpc.cast(ctxt, topic, {"method": "note", "args": {"value": value}})
def add(topic, timeout=10): return rpc.call(ctxt, topic, {"method": "add", "args": {"a": 1, "b": 2}}, timeout)
proxy = dispatcher.RpcDispatcher([manager])
"""


@pytest.fixture(scope="module", params=["grizzly", "havana"])
def trio(program: Callable[..., Interpreter], request: pytest.FixtureRequest) -> list[Interpreter]:
    programs = [program(request.param, FIRST) for _ in range(3)]
    return [each.ready() for each in programs]


@pytest.fixture
def caller(trio: list[Interpreter]) -> Interpreter:
    return trio[0]


@pytest.fixture
def hosts(trio: list[Interpreter]) -> list[Interpreter]:
    for host in trio[1:]:
        host.run("manager.take(); seen.clear()")
    return trio[1:]


def test_each_pool_of_workers_gets_each_message_and_its_members_compete(caller, hosts, topic):
    """The first pool has a member in each process, the second is all in one."""
    for host in hosts:
        host.run("conn = connection(); conn.create_worker(topic, proxy, topic + '.both')", topic=topic)
    hosts[1].run(
        """
        from nova.openstack.common.rpc.dispatcher import RpcDispatcher
        alone = type(manager)()
        conn.create_worker(topic, RpcDispatcher([alone]), topic + '.alone')
        """,
        topic=topic,
    )
    for host in hosts:
        host.run("conn.consume_in_thread()")
    caller.run("for n in range(6): note(topic, n)", topic=topic)
    hosts[1].until("sorted(alone.seen)", [*range(6)])
    eventually(lambda: len(hosts[0].run("manager.seen") + hosts[1].run("manager.seen")) >= 6)
    first, second = (host.run("manager.seen") for host in hosts)
    assert sorted(first + second) == [*range(6)]
    assert len(first) == len(second) == 3
    for host in hosts:
        host.run("conn.close()")


def test_members_of_a_consumer_pool_compete_for_notifications(caller, hosts, topic):
    code = "conn = connection(); conn.join_consumer_pool(seen.append, pool, topic, 'nova'); conn.consume_in_thread()"
    for host in hosts:
        host.run(code, topic=f"{topic}.info", pool=f"{topic}.pool")
    caller.run("for n in range(4): rpc.notify(ctxt, topic, {'event_type': 'e', 'n': n})", topic=f"{topic}.info")
    eventually(lambda: sum(len(host.run("seen")) for host in hosts) >= 4)
    numbers = [host.run("[message['n'] for message in seen]") for host in hosts]
    assert sorted(numbers[0] + numbers[1]) == [0, 1, 2, 3]
    assert len(numbers[0]) == 2
    assert hosts[0].run("seen[0]['event_type'], '_context_is_admin' in seen[0]") == ("e", True)
    for host in hosts:
        host.run("conn.close()")


def test_what_is_sent_while_the_consumer_is_away_waits_for_it(caller, hosts, topic):
    serve = "conn = connection(); conn.create_consumer(topic, proxy); conn.consume_in_thread()"
    hosts[0].run(serve, topic=topic)
    assert caller.run("add(topic)", topic=topic) == 3
    hosts[0].run("conn.close()")
    caller.run("for n in range(3): note(topic, n)", topic=topic)
    calling = caller.start("add(topic)", topic=topic)
    hosts[1].run(serve, topic=topic)
    assert caller.result(calling) == 3
    hosts[1].until("manager.seen", [0, 1, 2])
    assert hosts[0].run("manager.seen") == []
    hosts[1].run("conn.close()")


def test_what_is_sent_between_declaring_and_consuming_waits(caller, hosts, topic):
    hosts[0].run("conn = connection(); conn.create_consumer(topic, proxy)", topic=topic)
    caller.run("note(topic, 'early')", topic=topic)
    assert hosts[0].run("manager.seen") == []
    hosts[0].run("conn.consume_in_thread()")
    hosts[0].until("manager.seen", ["early"])
    hosts[0].run("conn.close()")


def test_a_fanout_is_not_kept_for_those_who_are_away(caller, hosts, topic):
    serve = "conn = connection(); conn.create_consumer(topic, proxy, fanout=True); conn.consume_in_thread()"
    say = "rpc.fanout_cast(ctxt, topic, {'method': 'note', 'args': {'value': value}})"
    hosts[0].run(serve, topic=topic)
    caller.run(say, topic=topic, value="first")
    hosts[0].until("manager.seen", ["first"])
    hosts[1].run(serve, topic=topic)
    caller.run(say, topic=topic, value="second")
    hosts[0].until("manager.seen", ["first", "second"])
    hosts[1].until("manager.seen", ["second"])
    for host in hosts:
        host.run("conn.close()")


def test_a_notification_waits_for_the_first_consumer_that_ever_comes(caller, hosts, topic):
    sent = {"event_type": "compute.create", "payload": {"id": 1}, "priority": "INFO"}
    caller.run("for n in range(3): rpc.notify(ctxt, topic, dict(sent, n=n))", topic=f"{topic}.info", sent=sent)
    hosts[0].run(
        "conn = connection(); conn.declare_topic_consumer(topic, seen.append); conn.consume(limit=3)",
        topic=f"{topic}.info",
    )
    received = hosts[0].run("seen")
    assert [message["n"] for message in received] == [0, 1, 2]
    assert all(sent.items() <= message.items() for message in received)
    hosts[0].run("conn.close()")


def test_cleanup_and_then_a_call(caller, hosts, topic):
    hosts[0].run("conn = connection(); conn.create_consumer(topic, proxy); conn.consume_in_thread()", topic=topic)
    for _ in range(2):
        assert caller.run("add(topic)", topic=topic) == 3
        assert caller.run("rpc.cleanup()") is None
    # A program that also serves goes on doing so.
    hosts[0].run("rpc.cleanup()")
    assert caller.run("add(topic)", topic=topic) == 3
    hosts[0].run("conn.close()")


def test_cast_to_server_and_fanout_cast_to_server(caller, hosts, router, topic):
    """The other cell's router is named by its host; it listens on the port of ours, and is ours here."""
    for host in hosts:
        host.run(
            "conn = connection(); [conn.create_consumer(topic, proxy, fanout=f) for f in (False, True)]", topic=topic
        )
        host.run("conn.consume_in_thread()")
    server = {"hostname": "localhost", "port": 5672, "username": "u", "password": "p", "virtual_host": "/"}
    message = "{'method': 'note', 'args': {'value': value}}"
    for n in range(2):
        caller.run(f"rpc.cast_to_server(ctxt, server, topic, {message})", server=server, topic=topic, value=n)
    eventually(lambda: sorted(host.run("manager.seen") for host in hosts) == [[0], [1]])
    caller.run(f"rpc.fanout_cast_to_server(ctxt, server, topic, {message})", server=server, topic=topic, value="all")
    for host in hosts:
        host.until("manager.seen[1:]", ["all"])
        host.run("conn.close()")


def test_a_consumer_made_after_consume_in_thread_is_served_too(caller, hosts, topic):
    hosts[0].run("conn = connection(); conn.create_consumer(topic + 'a', proxy); conn.consume_in_thread()", topic=topic)
    hosts[0].run("conn.create_consumer(topic, proxy)", topic=topic)
    assert caller.run("add(topic)", topic=topic) == 3
    hosts[0].run("conn.close()")


def test_a_killed_service_leaves_its_topic_to_the_others(caller, hosts, program, topic):
    serve = "conn = connection(); conn.create_consumer(topic, proxy); conn.consume_in_thread()"
    victim = program("grizzly", FIRST)
    victim.run(serve, topic=topic)
    assert caller.run("add(topic)", topic=topic) == 3
    victim.kill()
    calling = caller.start("add(topic)", topic=topic)
    hosts[0].run(serve, topic=topic)
    assert caller.result(calling) == 3
    hosts[0].run("conn.close()")
