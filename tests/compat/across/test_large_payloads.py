"""Arguments, answers and casts that are large, from a legacy program: it runs patched, as they all did."""

from __future__ import annotations

import pytest

from tests.compat.across.interpreter import Interpreter

_SERVICE = """
from nova import rpc

class Manager:
    noted = []

    def size(self, context, data):
        return len(data)

    def read(self, context, size):
        return "x" * size

    def note(self, context, data):
        self.noted.append(len(data))

connection = rpc.create_connection(new=True)
connection.create_consumer(topic, Manager(), fanout=False)
connection.consume_in_thread()
"""
_CALLER = """
from nova import context, rpc

def call(topic, method, **args):
    return rpc.call(context.get_admin_context(), topic, {"method": method, "args": args})

def cast(topic, method, **args):
    return rpc.cast(context.get_admin_context(), topic, {"method": method, "args": args})
"""


@pytest.mark.parametrize("size", [70_000, 1 << 20])
def test_large_payloads_of_legacy_programs_arrive(router: str, topic: str, size: int) -> None:
    with Interpreter(router) as service, Interpreter(router) as caller:
        service.run(_SERVICE, topic=topic)
        caller.run(_CALLER)
        assert caller.run("call(topic, 'size', data='x' * size)", topic=topic, size=size) == size
        assert caller.run("call(topic, 'size', data='small')", topic=topic) == 5
        assert caller.run("len(call(topic, 'read', size=size))", topic=topic, size=size) == size
        caller.run("for _ in range(3): cast(topic, 'note', data='x' * size)", topic=topic, size=size)
        service.until("Manager.noted", [size] * 3)
        assert caller.run("call(topic, 'size', data='small')", topic=topic) == 5
