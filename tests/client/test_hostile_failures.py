"""A hostile service cannot hang its caller with an exception, nor a hostile caller a service by having it raise one."""

from __future__ import annotations

import pickle
import traceback
from time import monotonic
from typing import Any

import pytest

from rpcmq.cli.output import typed_json
from rpcmq.client.consumer import ANSWERED, Consumer
from rpcmq.core.process.task import Task
from rpcmq.errors import RemoteError, UsageError
from rpcmq.testing import eventually
from rpcmq.wire import Address, Kind
from tests.client.endpoints import message


def shared() -> Any:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


def hostile_fault(member: str) -> bytes:
    nested = [shared(), shared()]
    record = {"type": "builtins:ValueError", "text": "t", member: [nested] if member == "causes" else nested}
    return pickle.dumps(record, 5)


@pytest.mark.own_hub
@pytest.mark.parametrize("member", ["causes", "args", "attributes", "hops"])
def test_a_fault_of_nested_shared_lists_does_not_hang_its_caller(client, connect, member):
    hostile = connect("hostile")
    fault = hostile_fault(member)
    assert len(fault) < 1000

    def answer(task: Task, body: dict[str, Any]) -> Any:
        hostile.process.tasks.answer(monotonic(), task, Kind.FAULT, 2, fault)
        hostile.process.schedule()
        return ANSWERED

    consumer = Consumer(hostile, Address("compute", "h", ""), answer)
    consumer.start()
    with pytest.raises(RemoteError, match="it is no typed JSON") as raised:
        client.call(None, "compute", message("run"), timeout=10)
    assert len("".join(traceback.format_exception(raised.value))) < 10_000
    assert client.process.payloads.refused["decoder"] == 1
    consumer.stop(1.0)


class Naive:
    """Puts what it is given into its exceptions."""

    def __init__(self) -> None:
        self.runs = 0

    def fail(self, ctx: Any, value: Any) -> None:
        self.runs += 1
        try:
            raise KeyError(value)
        except KeyError as error:
            raise ValueError(value, {"value": value}) from error

    def misuse(self, ctx: Any, value: Any) -> None:
        self.runs += 1
        raise UsageError(f"not {len(value)}") from ValueError(value)

    def ping(self, ctx: Any) -> str:
        return "pong"


@pytest.mark.parametrize("method", ["fail", "misuse"])
def test_a_value_of_nested_shared_lists_does_not_hang_the_service_that_raises_it(client, serve, caplog, method):
    naive = Naive()
    serve(naive)
    with pytest.raises((ValueError, RemoteError)) as raised:
        client.call(None, "compute", message(method, value=shared()), timeout=10)
    assert len(str(raised.value)) < 10_000
    client.cast(None, "compute", message(method, value=shared()))
    eventually(lambda: naive.runs == 2)
    eventually(lambda: f"cast {method} to compute.node-7 failed" in caplog.text)
    assert len(caplog.text) < 100_000
    assert client.call(None, "compute", message("ping"), timeout=10) == "pong"


def test_a_verb_that_is_misused_with_one_says_so_at_once(client):
    value = shared()
    for misuse in (
        lambda: client.call(None, "compute", value),
        lambda: client.call(None, "compute", {"method": value, "args": {}}),
        lambda: client.call(None, "compute", {"method": "m", "args": value}),
        lambda: client.call(None, value, message("m")),
        lambda: client.call(None, "compute", message("m"), traceparent=repr("x" * 100)),
    ):
        with pytest.raises(UsageError) as raised:
            misuse()
        assert len(str(raised.value)) < 1000


def test_the_command_line_prints_a_result_of_nested_shared_lists_briefly():
    assert len(typed_json(shared())) < 2_000_000
    assert len(typed_json({"value": shared(), "of": object})) < 2_000_000
