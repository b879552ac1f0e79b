"""The faults of nova-mq, the prototype that this replaces, each as a test of its own.

In it ``novamq.rpc`` was the backend of an Essex service; here that is any of the drivers' names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rpcmq.testing.processes import Program
from tests.compat.across.interpreter import Interpreter, Raised

pytestmark = pytest.mark.integration

CALLER = """
import os
from nova import context, rpc
from nova.rpc import impl_carrot
ctxt = context.get_admin_context()
def call(name, topic, timeout=10, **args):
    return impl_carrot.call(ctxt, topic, {"method": name, "args": args}, timeout)
def multicall(name, topic, **args):
    return impl_carrot.multicall(ctxt, topic, {"method": name, "args": args})
"""


@pytest.fixture(scope="module")
def processes(program: Callable[..., Interpreter]) -> list[Interpreter]:
    """The caller and the service."""
    started = [program("essex", CALLER), program("essex", "import services; from nova import rpc")]
    return [each.ready() for each in started]


@pytest.fixture
def caller(processes: list[Interpreter]) -> Interpreter:
    return processes[0]


@pytest.fixture
def service(processes: list[Interpreter], topic: str) -> Iterator[Interpreter]:
    """Serves ``topic``."""
    processes[1].run("manager = type(manager)(); stop = services.essex(topic, 'host', manager)", topic=topic)
    yield processes[1]
    processes[1].run("stop()")


def error(caller: Interpreter, code: str, **names: Any) -> Raised:
    """Run ``code``, which must raise; return the exception."""
    with pytest.raises(Raised) as raised:
        caller.run(code, **names)
    return raised.value


def test_a_call_opens_no_socket(caller, service, topic):
    code = """
    call("add", topic, a=1, b=1)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(50):
        call("add", topic, a=1, b=1)
        list(multicall("count", topic, n=2))
        rpc.cast(ctxt, topic, {"method": "note", "args": {"value": 1}})
    sorted(os.listdir("/proc/self/fd")) == before
    """
    assert caller.run(code, topic=topic) is True


def test_casts_are_not_lost_when_the_caller_ends(service, router, topic):
    command = [sys.executable, str(Path(__file__).parent / "programs" / "caster.py"), topic, "300"]
    with Program(command, {"RPCMQ_ROUTER": router}, "caster") as caster:
        assert caster.wait() == 0, caster.said()
    service.until("sorted(manager.seen)", [*range(300)])


def test_fanout_works_through_the_module(caller, service, topic):
    service.run("other = type(manager)(); stop_other = services.essex(topic, 'other', other)", topic=topic)
    message = "{'method': 'note', 'args': {'value': 'all'}}"
    caller.run(f"impl_carrot.fanout_cast(ctxt, topic, {message})", topic=topic)
    service.until("manager.seen, other.seen", (["all"], ["all"]))
    service.run("stop_other()")


def test_topics_that_begin_alike_are_not_mixed(caller, service, topic):
    """``compute``, ``compute.host`` and ``computer``: calls, casts and fan-outs."""
    code = "others = {}; stops = []\n" + "\n".join(
        f"others[{end!r}] = type(manager)(); stops.append(services.essex(topic + {end!r}, 'host', others[{end!r}]))"
        for end in (".node", "er")
    )
    service.run(code, topic=topic)
    for verb in ("rpc.call", "rpc.cast", "rpc.fanout_cast"):
        for end in ("", ".node", "er"):
            message = {"method": "note", "args": {"value": verb + end}}
            caller.run(f"{verb}(ctxt, topic, message)", topic=topic + end, message=message)
    three = ["rpc.call", "rpc.cast", "rpc.fanout_cast"]
    service.until("sorted(manager.seen)", three)
    for end in (".node", "er"):
        service.until(f"sorted(others[{end!r}].seen)", [verb + end for verb in three])
    assert service.run("sorted(manager.seen)") == three
    service.run("[stop_one() for stop_one in stops]")


def test_a_slow_call_does_not_block_its_topic(caller, service, topic):
    slow = caller.start("call('wait', topic, gate='slow', value='slow')", topic=topic)
    service.until("manager.started", ["slow"])
    assert caller.run("[call('add', topic, a=n, b=0) for n in range(3)]", topic=topic) == [0, 1, 2]
    service.run("manager.gate('slow').set()")
    assert caller.result(slow) == "slow"


def test_a_call_to_ones_own_topic_is_answered(caller, service, topic):
    code = "call('ask', topic, where=topic, what='ask', args={'where': topic, 'what': 'add', 'args': {'a': 1, 'b': 1}})"
    assert caller.run(code, topic=topic) == 2


def test_an_exception_does_not_close_the_consumer(caller, service, topic):
    for n in range(3):
        error(caller, "call('fail', topic, text='x')", topic=topic)
        assert caller.run("call('add', topic, a=1, b=n)", topic=topic, n=n) == 1 + n


def test_exc_type_is_the_name_of_the_class(caller, service, topic):
    raised = error(caller, "call('fail', topic, text='x')", topic=topic)
    assert (raised.kind, raised.attributes["exc_type"]) == ("RemoteError", "ValueError")


def test_the_value_of_an_error_is_the_exceptions(caller, service, topic):
    """It was taken from the arguments of the request."""
    service.run("def divide(context, a, b): return a / b\nmanager.divide = divide")
    raised = error(caller, "call('divide', topic, a=1, b=0)", topic=topic)
    assert raised.attributes["value"] == "division by zero"


def test_a_timeout_is_the_callers_and_of_novas_class(caller, service, topic):
    """It was five seconds, always, and an exception of another library."""
    raised = error(caller, "call('wait', topic, 0.1, gate='never')", topic=topic)
    assert raised.kinds[0] == "nova.rpc.common.Timeout"
    service.run("manager.gate('never').set()")


def test_the_items_of_a_generator_come_one_by_one(caller, service, topic):
    assert caller.run("list(multicall('count', topic, n=3))", topic=topic) == [0, 1, 2]
    assert caller.run("call('count', topic, n=3)", topic=topic) == 2


def test_a_call_of_an_empty_generator_gives_none(caller, service, topic):
    assert caller.run("call('count', topic, n=0)", topic=topic) is None
    assert caller.run("list(multicall('count', topic, n=0))", topic=topic) == []


def test_consume_works(caller, service, topic):
    consuming = service.start(
        "conn = rpc.create_connection(new=True); conn.create_consumer(topic, manager); conn.consume(limit=3); 'done'",
        topic=f"{topic}.consume",
    )
    answers = caller.run("[call('add', topic, a=n, b=1) for n in range(3)]", topic=f"{topic}.consume")
    assert answers == [1, 2, 3]
    assert service.result(consuming) == "done"
    service.run("conn.close()")
