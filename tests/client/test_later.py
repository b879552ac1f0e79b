"""Results that come after their method has returned."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from rpcmq.client.later import Later
from rpcmq.errors import RemoteError
from rpcmq.testing import eventually
from tests.client.endpoints import message


@pytest.fixture
def client_shell() -> str:
    """Results come later in the home of a client that lives in gevent alone."""
    return "gevent"


class Endpoint:
    def __init__(self) -> None:
        self.open: list[Later[Any]] = []
        self.greenlets: set[int] = set()

    def ask(self, ctx: Any) -> Later[Any]:
        self.greenlets.add(id(gevent.getcurrent()))
        self.open.append(Later())
        return self.open[-1]

    def know(self, ctx: Any) -> Later[Any]:
        later: Later[Any] = Later()
        later.answer("at once")
        return later


def test_a_call_ends_when_its_result_is_there(client, serve):
    endpoint = Endpoint()
    serve(endpoint)
    calls = [gevent.spawn(client.call, None, "compute", message("ask")) for _ in range(3)]
    eventually(lambda: len(endpoint.open) == 3)
    assert not any(call.ready() for call in calls)
    assert len(endpoint.greenlets) == 1  # nobody waits
    for number, later in enumerate(endpoint.open):
        later.answer(number)
    gevent.joinall(calls, timeout=10, raise_error=True)
    assert [call.value for call in calls] == [0, 1, 2]
    assert client.call(None, "compute", message("know")) == "at once"


def test_a_result_that_cannot_be_sent_is_an_error_at_the_caller(client, serve):
    endpoint = Endpoint()
    serve(endpoint)
    call = gevent.spawn(client.call, None, "compute", message("ask"))
    eventually(lambda: endpoint.open)
    endpoint.open[0].answer(gevent.getcurrent())
    with pytest.raises(RemoteError, match="PayloadError"):
        call.get(timeout=10)


def test_a_method_that_fails_after_it_has_returned_is_an_error_at_the_caller(client, serve):
    endpoint = Endpoint()
    serve(endpoint)
    call = gevent.spawn(client.call, None, "compute", message("ask"))
    eventually(lambda: endpoint.open)
    endpoint.open[0].fail(ValueError("too late"))
    endpoint.open[0].answer("ignored")
    with pytest.raises(ValueError, match="too late"):
        call.get(timeout=10)


def test_an_error_that_was_there_first_is_told_and_a_result_after_it_is_not():
    told: list[Any] = []
    later: Later[Any] = Later()
    error = ValueError("wrong")
    later.fail(error)
    later.answer("ignored")
    later.then(told.append, told.append)
    assert told == [error]


def test_a_service_that_stops_waits_for_results(client, serve):
    endpoint = Endpoint()
    service = serve(endpoint)
    call = gevent.spawn(client.call, None, "compute", message("ask"))
    eventually(lambda: endpoint.open)
    stopping = gevent.spawn(service.stop, 10)
    eventually(lambda: service._consumer._left)
    assert not stopping.ready()
    endpoint.open[0].answer("late")
    assert call.get(timeout=10) == "late"
    assert stopping.get(timeout=10)
