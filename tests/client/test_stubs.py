"""Stubs of services: over a router, in gevent and in plain threads; over the module's verbs; and by themselves."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

import rpcmq
from rpcmq import CallOptions, as_cast, as_fanout, current_request, rpc, with_options
from rpcmq.client.stubs import StubOptions, make_stub
from rpcmq.errors import NoConsumer, UsageError
from rpcmq.testing import eventually
from tests.client.endpoints import Compute
from tests.from_threads import each_blocking_shell, in_thread

client_shell = each_blocking_shell


class ComputeApi(Protocol):
    """The part of Compute that a caller needs to know."""

    def add(self, ctx: Any, a: int, b: int = 0) -> int:
        """Add two numbers."""

    def echo(self, ctx: Any, value: Any = None) -> Any: ...
    def count(self, ctx: Any, n: int) -> Iterator[int]: ...
    def missing_there(self, ctx: Any) -> None: ...


class AbstractCompute(ABC):
    @abstractmethod
    def add(self, ctx: Any, a: int, b: int = 0) -> int: ...


def used(stub: Any, *args: Any, **named: Any) -> Any:
    """Call a method of a stub from a thread, as what waits in one of threads would hold up this hub."""
    return in_thread(stub, *args, **named)


def stub_over(client: Any, *args: Any, **options: Any) -> Any:
    return getattr(client, "driven", client).stub(*args, **options)


# --- over a router ------------------------------------------------------------------------------


def test_methods_are_called_as_those_of_the_class(client, serve):
    compute = Compute()
    serve(compute)
    stub = stub_over(client, Compute, "compute", timeout=10)
    assert used(stub.add, {"user": "u"}, 1, b=2) == 3
    assert used(stub.add, None, a=5) == 5
    assert used(stub.echo, {"user": "u"}, value=[1]) == [1]
    assert compute.contexts == [{"user": "u"}]
    with pytest.raises(ValueError, match="x"):
        used(stub.fail, None)


@pytest.mark.parametrize("declared", [ComputeApi, AbstractCompute])
def test_a_protocol_or_abstract_class_will_do(client, serve, declared):
    serve(Compute())
    assert used(stub_over(client, declared, "compute.node-7").add, None, 1, 2) == 3


def test_a_generator_is_a_stream(client, serve):
    serve(Compute())
    for declared in (Compute, ComputeApi):
        stub = stub_over(client, declared, "compute")
        assert in_thread(lambda stub=stub: list(stub.count(None, n=40))) == list(range(40))


def test_casts_and_fanouts_of_a_method(client, serve):
    compute = Compute()
    serve(compute)
    stub = stub_over(client, Compute, "compute", confirm=True)
    assert used(as_cast(stub.note), None, 1) is None
    assert used(as_fanout(stub.note), None, value=2) == 1
    assert used(as_fanout(with_options(stub, confirm=False).note), None, value=3) is None
    eventually(lambda: sorted(compute.seen) == [1, 2, 3])
    # A stream that is cast runs to its end.
    used(as_cast(stub.count), None, 4)
    eventually(lambda: compute.ended == ["count"])


def test_options_are_those_of_each_call(client):
    stub = stub_over(client, Compute, "nobody", mandatory=True, timeout=20)
    with pytest.raises(NoConsumer):
        used(stub.add, None, 1)
    with pytest.raises(NoConsumer):
        used(as_cast(with_options(stub.note, confirm=True)), None, 1)


def test_progress_is_told_where_the_stub_is_used(client, serve):
    class Worker:
        def work(self, ctx: Any, steps: int) -> str:
            request = current_request()
            assert request is not None
            for step in range(steps):
                request.progress(step)
            return "done"

    serve(Worker())
    seen: list[Any] = []
    stub = stub_over(client, Worker, "compute", timeout=10)
    assert used(with_options(stub.work, on_progress=seen.append), None, 3) == "done"
    assert seen == [0, 1, 2]


def test_the_timeout_of_a_stub_is_not_longer_than_that_of_the_request_being_handled(client, serve):
    class Front:
        def ask(self, ctx: Any) -> float:
            left: float = stub.remaining(None)
            return left

    serve(Compute())
    serve(Front(), topic="front")
    stub = stub_over(client, Compute, "compute", timeout=900)
    assert 0 < used(stub_over(client, Front, "front", timeout=30).ask, None) <= 30


def test_a_stub_of_the_module_uses_the_client_that_is_the_default_then(router, serve):
    stub = rpc.stub(ComputeApi, "compute", timeout=10)
    serve(Compute())
    assert used(stub.add, None, 1) == 1
    with rpcmq.Client(router.url, "chosen") as chosen:
        before = rpc.configure(chosen)
        try:
            assert used(stub.add, None, 2) == 2
            assert chosen.query("summary")["links"] >= 2
        finally:
            rpc.configure(before)


# --- by itself ----------------------------------------------------------------------------------


class Recorder:
    """A client that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def __getattr__(self, verb: str) -> Any:
        return lambda *args, **options: self.sent.append((verb, *args, options))


def recorded(declared: Any = Compute, awaitable: bool = False, **options: Any) -> tuple[Any, list[Any]]:
    recorder = Recorder()
    stub = make_stub(declared, "compute", lambda: recorder, options, awaitable=awaitable)  # type: ignore[arg-type]
    return stub, recorder.sent


def test_each_verb_gets_the_options_that_it_takes():
    stub, sent = recorded(
        timeout=5, retry=False, idempotent=True, mandatory=True, direct=True, confirm=True, ttl=9, on_progress=print
    )
    stub.add(1, a=2)
    stub.count(None, 3)
    as_cast(stub.note)(None)
    as_fanout(stub.note)(None)
    assert sent == [
        ("call", 1, "compute", {"method": "add", "args": {"a": 2}},
         {"timeout": 5, "idempotent": True, "mandatory": True, "retry": False, "direct": True, "on_progress": print}),
        ("multicall", None, "compute", {"method": "count", "args": {"n": 3}}, {"timeout": 5, "mandatory": True}),
        ("cast", None, "compute", {"method": "note", "args": {}},
         {"timeout": 5, "idempotent": True, "mandatory": True, "confirm": True, "ttl": 9}),
        ("fanout_cast", None, "compute", {"method": "note", "args": {}}, {"timeout": 5, "confirm": True}),
    ]  # fmt: skip


def test_wrong_arguments_are_refused_before_anything_is_sent():
    stub, sent = recorded()
    with pytest.raises(TypeError, match=r"^Compute\.add\(ctx: .*: missing a required argument: 'a'"):
        stub.add(None)
    with pytest.raises(AttributeError, match="Compute has no public method 'ad'; did you mean add"):
        stub.ad(None)
    with pytest.raises(AttributeError, match="_private"):
        stub._private(None)
    assert sent == []


def test_options_are_changed_for_a_stub_and_for_a_method():
    stub, sent = recorded(timeout=5)
    with_options(stub, idempotent=True).add(None, 1)
    with_options(stub.add, timeout=6)(None, 1)
    with_options(as_cast(stub.note), ttl=3)(None)
    assert [(verb, options) for verb, *_, options in sent] == [
        ("call", {"timeout": 5, "idempotent": True}),
        ("call", {"timeout": 6}),
        ("cast", {"timeout": 5, "ttl": 3}),
    ]


def test_misuse_is_refused_where_it_happens():
    for refused in (as_cast, as_fanout, with_options):
        with pytest.raises(UsageError, match=f"{refused.__name__} takes a"):
            refused(print)
    with pytest.raises(UsageError, match="unknown option 'tiemout'; a stub's options are timeout, "):
        rpc.stub(Compute, "compute", tiemout=5)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="timeout must be a positive number"):
        rpc.stub(Compute, "compute", timeout=-1)
    with pytest.raises(UsageError, match="a stub is made from a class"):
        rpc.stub(Compute(), "compute")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="topic must be a str or an Address"):
        rpc.stub(Compute, 5)  # type: ignore[arg-type]


class AsyncApi(Protocol):
    async def add(self, ctx: Any, a: int) -> int: ...
    def plain(self, ctx: Any) -> int: ...


def test_a_stub_keeps_what_the_class_says_of_waiting():
    with pytest.raises(UsageError, match=r"AsyncApi\.add is async, so its stub is one of rpcmq\.aio"):
        recorded(AsyncApi)[0].add(None, 1)
    with pytest.raises(UsageError, match=r"AsyncApi\.plain is not async"):
        recorded(AsyncApi, awaitable=True)[0].plain(None)
    stub, sent = recorded(AsyncApi, awaitable=True)
    stub.add(None, 1)
    assert sent[0][0] == "call"


def test_an_interactive_session_is_shown_the_methods():
    stub, _ = recorded(ComputeApi)
    assert dir(stub) == ["add", "count", "echo", "missing_there"]
    assert str(inspect.signature(stub.add)).startswith("(ctx: 'Any', a: 'int', b: 'int' = 0)")
    assert inspect.getdoc(stub.add) == "Add two numbers."
    assert repr(stub) == "<stub of ComputeApi on 'compute'>"
    assert repr(stub.add) == "<call of ComputeApi.add on 'compute'>"
    assert copy.copy(stub).add is not None


def test_each_call_option_is_one_of_a_stub():
    names = {field.name for field in dataclasses.fields(CallOptions)}
    assert set(StubOptions.__annotations__) == names | {"on_progress"}
