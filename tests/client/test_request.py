"""The handler's view of its request: time left, cancellation, progress, signs of life."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq.client.consumer import Consumer
from rpcmq.errors import CallTimeout, NestedCallError, RemoteError
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message


def test_outside_of_a_handler_there_is_no_request():
    assert rpcmq.current_request() is None


def test_a_handler_sees_what_it_runs_for(client, serve):
    seen: list[Any] = []

    class Endpoint:
        def look(self, ctx: Any) -> None:
            request = rpcmq.current_request()
            assert request is not None
            seen.append((request.method, str(request.topic), request.is_call, request.attempt, request.cancelled))

    serve(Endpoint())
    client.call(None, "compute", message("look"))
    client.cast(None, "compute", message("look"), confirm=True)
    eventually(lambda: len(seen) == 2)
    assert seen == [("look", "compute.node-7", True, 0, False), ("look", "compute.node-7", False, 0, False)]


def test_a_handler_sees_the_time_it_has_left(client, serve):
    serve(Compute())
    left = client.call(None, "compute", message("remaining"), timeout=20)
    assert 15 < left <= 20


def test_a_cast_without_ttl_has_no_deadline(client, serve):
    seen: list[Any] = []

    class Endpoint:
        def look(self, ctx: Any) -> None:
            request = rpcmq.current_request()
            assert request is not None
            seen.append(request.remaining)

    serve(Endpoint(), concurrency=1)
    client.cast(None, "compute", message("look"), confirm=True)
    client.cast(None, "compute", message("look"))
    client.cast(None, "compute", message("look"), ttl=20)
    eventually(lambda: len(seen) == 3)
    assert seen[:2] == [None, None]
    assert 15 < seen[2] <= 20


def test_the_time_left_goes_down_while_the_call_is_queued(client, serve):
    call = gevent.spawn(client.call, None, "compute", message("remaining"), timeout=20)
    gevent.sleep(0.2)
    serve(Compute())
    assert call.get(timeout=20) <= 19.8


class Front:
    def __init__(self, client: rpcmq.Client) -> None:
        self.client = client

    def ask(self, ctx: Any, timeout: float | None = None) -> Any:
        return self.client.call(None, "back", message("remaining"), timeout)

    def ask_from_a_greenlet(self, ctx: Any) -> Any:
        return gevent.spawn(copy_context().run, self.ask, ctx).get()

    def ask_from_a_stranger(self, ctx: Any) -> Any:
        return gevent.spawn(self.ask, ctx).get()

    def spend_it(self, ctx: Any) -> Any:
        gevent.sleep(0.15)
        return self.ask(ctx)

    def hold(self, ctx: Any) -> Any:
        return self.client.call(None, "back", message("until_cancelled"))


@pytest.fixture
def back(client, connect, serve):
    back = Compute()
    serve(back, "back")
    serve(Front(connect()), "front")
    return back


@pytest.mark.parametrize("method", ["ask", "ask_from_a_greenlet"])
def test_a_nested_call_inherits_the_deadline(back, client, method):
    left = client.call(None, "front", message(method), timeout=20)
    assert 15 < left <= 20


def test_a_greenlet_of_its_own_context_is_not_part_of_the_request(back, client):
    assert client.call(None, "front", message("ask_from_a_stranger"), timeout=20) > 20


def test_a_nested_call_inherits_what_is_left_of_it(back, client):
    assert client.call(None, "front", message("spend_it"), timeout=20) <= 19.86


def test_a_nested_call_may_have_its_own_timeout(back, client):
    assert client.call(None, "front", message("ask", timeout=7), timeout=20) <= 7
    assert client.call(None, "front", message("ask", timeout=30), timeout=20) > 20


def test_a_nested_call_ends_with_the_call_around_it(back, client):
    # Both have one deadline, but for the milliseconds that the wire counts in: either may end first.
    with pytest.raises((CallTimeout, NestedCallError), match="running"):
        client.call(None, "front", message("hold"), timeout=1.0)
    eventually(lambda: back.ended == ["cancelled"])


def test_after_its_deadline_a_handler_has_no_time_left(client, serve):
    seen: list[Any] = []

    class Endpoint:
        def overrun(self, ctx: Any) -> None:
            request = rpcmq.current_request()
            assert request is not None
            eventually(lambda: request.cancelled)
            seen.append(request.remaining)

    serve(Endpoint())
    client.connect(20)
    with pytest.raises(CallTimeout):
        client.call(None, "compute", message("overrun"), timeout=0.5)
    eventually(lambda: seen == [0.0])


# --- progress -----------------------------------------------------------------------------------


class Worker:
    def __init__(self) -> None:
        self.compute = Compute()

    def work(self, ctx: Any, steps: int) -> str:
        request = rpcmq.current_request()
        assert request is not None
        for n in range(steps):
            request.progress({"done": n})
            gevent.sleep(0.001)
        return "done"

    def report_a_function(self, ctx: Any) -> None:
        request = rpcmq.current_request()
        assert request is not None
        request.progress({"value": lambda: 0})


def test_progress_reaches_the_caller(client, serve):
    serve(Worker())
    seen: list[Any] = []
    assert client.call(None, "compute", message("work", steps=5), on_progress=seen.append) == "done"
    assert seen == [{"done": n} for n in range(5)]


def test_progress_that_nobody_asked_for_is_no_harm(client, serve):
    serve(Worker())
    assert client.call(None, "compute", message("work", steps=5)) == "done"
    client.cast(None, "compute", message("work", steps=5), confirm=True)
    assert client.call(None, "compute", message("work", steps=1)) == "done"


def test_progress_that_cannot_be_encoded(client, serve):
    serve(Worker())
    with pytest.raises(RemoteError, match="PayloadError: value"):
        client.call(None, "compute", message("report_a_function"))


def test_an_exception_of_the_callback_ends_the_call(router, client, serve):
    serve(Worker())

    def callback(value: Any) -> None:
        raise KeyError(value["done"])

    with pytest.raises(KeyError):
        client.call(None, "compute", message("work", steps=500), on_progress=callback)
    eventually(lambda: router.query("summary")["calls_in_flight"] == 0)


# --- signs of life ------------------------------------------------------------------------------


def test_a_long_handler_keeps_its_caller_waiting_with_signs_of_life(client, serve):
    compute = Compute()
    serve(compute)
    call = gevent.spawn(client.call, None, "compute", message("hold"), timeout=20, sign_of_life=1.0)
    gevent.sleep(2.5)
    assert not call.ready()
    compute.go_on.set()
    assert call.get(timeout=20) == "held"


def test_a_service_that_shows_no_sign_of_life_is_given_up(client, serve):
    compute = Compute()
    service = serve(compute)
    call = gevent.spawn(client.call, None, "compute", message("hold"), timeout=20, sign_of_life=0.2)
    assert compute.started.wait(20)
    # The handler runs, but nothing of it gets out.
    service.client.process.tasks.send_item = lambda *args: None
    with pytest.raises(CallTimeout, match=r"no sign of life for 0.2 s from 'compute'"):
        call.get(timeout=20)
    compute.go_on.set()


def test_keep_alives_end_with_the_handler(router, client, serve, monkeypatch):
    begin = Consumer._keep_alive
    monkeypatch.setattr(Consumer, "_keep_alive", lambda consumer, task, seconds: begin(consumer, task, 0.05))
    compute = Compute()
    service = serve(compute)
    sent: list[Any] = []
    serving = service.client.process.tasks
    original = serving.send_item

    def spy(*args: Any) -> None:
        sent.append(args)
        original(*args)

    serving.send_item = spy
    call = gevent.spawn(client.call, None, "compute", message("hold"), sign_of_life=20.0)
    eventually(lambda: len(sent) > 1)
    compute.go_on.set()
    assert call.get(timeout=20) == "held"
    before = len(sent)
    gevent.sleep(0.2)
    assert len(sent) == before
