"""The end of a handler's own call is never taken for the end of its caller's: api -> scheduler -> compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from rpcmq.client import Client, Retry, current_request
from rpcmq.errors import (
    CallError,
    CallTimeout,
    LinkLost,
    NestedCallError,
    NoConsumer,
    Overloaded,
    PayloadError,
    PayloadRefused,
    RemoteError,
    RouterUnreachable,
    UnknownMethod,
    UsageError,
)
from rpcmq.payload import ExceptionRegistry
from tests.client.endpoints import message

ENDS = [CallTimeout, NoConsumer, Overloaded, LinkLost, CallError, RouterUnreachable]


class OwnTimeout(CallTimeout):
    """An application's."""


class BuildFailed(Exception):
    pass


class Scheduler:
    """Calls on, and counts how often it was run."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.runs = 0

    def forward(self, ctx: Any, topic: str, method: str = "run", options: Any = None, args: Any = None) -> Any:
        self.runs += 1
        return self.client.call(ctx, topic, {"method": method, "args": args or {}}, **(options or {}))

    def items(self, ctx: Any, topic: str, options: Any) -> Iterator[Any]:
        self.runs += 1
        yield 1
        yield self.client.call(ctx, topic, message("run"), **options)

    def forward_items(self, ctx: Any, topic: str) -> list[Any]:
        self.runs += 1
        return list(self.client.multicall(ctx, topic, message("items", topic="nobody", options={"mandatory": True})))

    def chained(self, ctx: Any, topic: str) -> None:
        self.runs += 1
        try:
            self.client.call(ctx, topic, message("run"), mandatory=True)
        except NoConsumer as error:
            raise BuildFailed("no host") from error

    def deliberate(self, ctx: Any, kind: str) -> None:
        self.runs += 1
        raise {cls.__name__: cls for cls in (*ENDS, OwnTimeout)}[kind]("mine")

    def misuse(self, ctx: Any, kind: str) -> None:
        self.runs += 1
        args = {"value": lambda: 0} if kind == "PayloadError" else {}
        self.client.call(ctx, "compute" if args else "", message("run", **args))

    def report(self, ctx: Any) -> str:
        self.runs += 1
        request = current_request()
        assert request is not None
        request.progress("half")
        gevent.sleep(0.05)
        return "done"


@pytest.fixture
def scheduler(serve: Callable[..., Any], connect: Callable[..., Any]) -> Scheduler:
    endpoint = Scheduler(connect("scheduler"))
    serve(endpoint, "scheduler", "ctl", client=endpoint.client, direct=True)
    return endpoint


def failure(client: Client, method: str, how: Any = None, /, **args: Any) -> Any:
    try:
        client.call(None, "scheduler", {"method": method, "args": args}, timeout=10, **(how or {}))
    except Exception as error:
        return error
    raise AssertionError("it has not failed")


@pytest.mark.parametrize("how", [{}, {"retry": Retry(attempts=4, base=0.001)}, {"direct": True}])
def test_a_nested_no_consumer_is_another_error_and_carries_the_chain(client, scheduler, how):
    error = failure(client, "forward", how, topic="compute", options={"mandatory": True})
    assert type(error) is NestedCallError and isinstance(error, RemoteError) and not isinstance(error, CallError)
    assert scheduler.runs == 1
    assert (error.exc_type, error.remote_host) == ("rpcmq.errors.NoConsumer", "scheduler")
    assert "no consumer on 'compute'" in error.value
    assert [hop[:4] for hop in error.remote_hops] == [
        ("scheduler", "forward", "scheduler", "rpcmq.errors.NoConsumer"),
        ("compute", "run", "", "rpcmq.errors.NoConsumer"),
    ]
    assert error.details["topic"] == "compute"
    assert str(error).endswith("(in the chain of calls 'scheduler' forward on scheduler -> 'compute' run)")


@pytest.mark.parametrize("kind", [*ENDS, OwnTimeout])
@pytest.mark.parametrize("how", [{}, {"retry": Retry(attempts=4, base=0.001)}, {"direct": True}])
def test_one_that_the_handler_raises_by_itself_is_not_the_callers_either(connect, scheduler, kind, how):
    client = connect(exceptions=ExceptionRegistry([OwnTimeout]))
    error = failure(client, "deliberate", how, kind=kind.__name__)
    assert type(error) is NestedCallError and error.exc_type.endswith(f".{kind.__name__}")
    assert error.value == "mine"
    assert not isinstance(error, (CallError, TimeoutError, ConnectionError))
    assert scheduler.runs == 1


def test_a_nested_timeout_says_where_it_was(client, scheduler):
    error = failure(client, "forward", topic="compute", options={"timeout": 0.2})
    assert type(error) is NestedCallError and error.exc_type == "rpcmq.errors.CallTimeout"
    assert error.details["state"] == "queued"


def test_three_hops(client, scheduler, serve, connect):
    compute = Scheduler(connect("compute-1"))
    serve(compute, "compute", "node-7", client=compute.client)
    args = {"topic": "storage", "method": "get", "options": {"mandatory": True}}
    retry = {"retry": Retry(attempts=4, base=0.001)}
    error = failure(client, "forward", retry, topic="compute", method="forward", args=args)
    assert type(error) is NestedCallError and (scheduler.runs, compute.runs) == (1, 1)
    assert (error.exc_type, error.value) == ("rpcmq.errors.NoConsumer", error.remote_hops[-1].text)
    chain = [(hop.topic, hop.method, hop.server) for hop in error.remote_hops]
    assert chain == [("scheduler", "forward", "scheduler"), ("compute", "forward", "compute-1"), ("storage", "get", "")]
    assert [hop.text for hop in error.remote_hops[:2]] == ["", ""]


def test_a_method_that_a_nested_call_did_not_find_is_not_the_callers(client, scheduler, serve):
    serve(SimpleNamespace(other=lambda ctx: None), "compute")
    error = failure(client, "forward", topic="compute", method="nope")
    assert type(error) is NestedCallError and error.exc_type == "rpcmq.errors.UnknownMethod"
    assert [hop.method for hop in error.remote_hops] == ["forward", "nope"]
    assert type(failure(client, "nope")) is UnknownMethod


@pytest.mark.parametrize("kind", [UnknownMethod, PayloadRefused])
def test_a_refusal_that_the_handler_raises_by_itself_is_not_taken_for_one_of_the_request(client, serve, kind):
    class Raises:
        def run(self, ctx: Any) -> None:
            raise kind("mine")

    serve(Raises())
    with pytest.raises(RemoteError, match="mine") as raised:
        client.call(None, "compute", message("run"), timeout=10)
    assert raised.value.exc_type == f"rpcmq.errors.{kind.__name__}"
    with pytest.raises(UnknownMethod):
        client.call(None, "compute", message("nope"), timeout=10)


@pytest.mark.parametrize(("kind", "cls"), [("PayloadError", PayloadError), ("UsageError", UsageError)])
def test_a_mistake_of_the_handlers_is_not_the_callers(client, scheduler, kind, cls):
    error = failure(client, "misuse", kind=kind)
    assert type(error) is RemoteError and error.exc_type == f"rpcmq.errors.{kind}"
    assert not isinstance(error, cls)


def test_what_is_raised_from_a_nested_end_is_itself(connect, scheduler):
    client = connect(exceptions=ExceptionRegistry([BuildFailed]))
    error = failure(client, "chained", {"retry": 4}, topic="compute")
    assert type(error) is BuildFailed and scheduler.runs == 1
    assert vars(error)["remote_causes"][0][0] == "rpcmq.errors:NoConsumer"
    assert [hop[:2] for hop in vars(error)["remote_hops"]] == [("scheduler", "chained")]


def test_streams(client, scheduler, serve, connect):
    stream = client.multicall(
        None, "scheduler", message("items", topic="compute", options={"mandatory": True}), timeout=10
    )
    assert next(stream) == 1
    with pytest.raises(NestedCallError) as raised:
        next(stream)
    assert raised.value.exc_type == "rpcmq.errors.NoConsumer"
    assert raised.value.remote_hops[0][:2] == ("scheduler", "items")
    compute = Scheduler(connect("compute-1"))
    serve(compute, "compute", "node-7", client=compute.client)
    error = failure(client, "forward_items", topic="compute")
    assert type(error) is NestedCallError
    assert [hop.topic for hop in error.remote_hops] == ["scheduler", "compute", "nobody"]


@pytest.mark.parametrize("kind", ENDS)
def test_what_on_progress_raises_is_raised_as_it_is_and_nothing_is_run_again(client, scheduler, kind):
    def on_progress(value: Any) -> None:
        raise kind("from the callback")

    with pytest.raises(kind, match="from the callback") as raised:
        client.call(
            None, "scheduler", message("report"), timeout=10, retry=Retry(4, base=0.001), on_progress=on_progress
        )
    assert type(raised.value) is kind
    assert scheduler.runs == 1


def test_what_is_the_callers_own_is_still_itself(client):
    with pytest.raises(NoConsumer):
        client.call(None, "nobody", message("run"), mandatory=True)
