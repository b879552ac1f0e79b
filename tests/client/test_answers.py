from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import gevent
import pytest

import rpcmq.aio.stream
from rpcmq.client import Client
from rpcmq.client.answers import Stream
from rpcmq.core.common.stream_credit import UNASKED_ITEMS as STREAM_WINDOW
from rpcmq.errors import CallTimeout, RemoteError, UnknownMethod
from rpcmq.payload import AllowList, Codec, Format
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message, topic


def test_a_generator_is_streamed(client, serve):
    compute = Compute()
    serve(compute)
    assert list(client.multicall(None, "compute", message("count", n=500))) == list(range(500))
    assert list(client.multicall(None, "compute", message("count", n=0))) == []
    assert compute.ended == ["count"] * 2


def test_items_come_as_they_are_yielded(client, serve):
    compute = Compute()

    class Slow:
        def numbers(self, ctx: Any) -> Any:
            yield 1
            compute.go_on.wait()
            yield 2

    serve(Slow())
    items = client.multicall(None, "compute", message("numbers"))
    assert next(items) == 1
    compute.go_on.set()
    assert list(items) == [2]


def test_the_request_is_sent_before_the_first_item_is_asked_for(client, serve):
    compute = Compute()
    serve(compute)
    items = client.multicall(None, "compute", message("count", n=3))
    eventually(lambda: compute.seen == [0, 1, 2])
    assert list(items) == [0, 1, 2]


def test_the_service_goes_at_most_a_window_ahead(client, serve):
    compute = Compute()
    serve(compute)
    items = client.multicall(None, "compute", message("count", n=1000))
    taken = 0
    while taken < 200:
        assert next(items) == taken
        taken += 1
        gevent.sleep(0.001)
        # One more than the window is made, and waits until it may be sent.
        assert len(compute.seen) <= taken + STREAM_WINDOW + 1
    items.close()


def test_a_service_that_may_not_send_waits_and_does_not_give_up(client, serve):
    compute = Compute()
    serve(compute)
    items = client.multicall(None, "compute", message("count", n=100))
    eventually(lambda: len(compute.seen) == STREAM_WINDOW + 1)
    assert list(items) == list(range(100))


def test_a_method_that_is_no_generator_gives_one_item(client, serve):
    serve(Compute())
    assert list(client.multicall(None, "compute", message("add", a=1, b=2))) == [3]


def test_a_call_of_a_generator_says_to_use_multicall_and_runs_nothing(client, serve):
    compute = Compute()
    serve(compute)
    for n in (100, 0):
        with pytest.raises(RemoteError, match=r"'count' on 'compute\..*' gives its result item by item.* multicall"):
            client.call(None, "compute", message("count", n=n))
    assert compute.seen == [] and compute.ended == []


class Iterators:
    """Returns iterators that are no generators."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def numbers(self, ctx: Any, n: int) -> Iterator[int]:
        return map(self._taken, range(n))

    def _taken(self, number: int) -> int:
        self.taken.append(number)
        return number

    def listed(self, ctx: Any) -> list[int]:
        return [1, 2]


def test_any_iterator_that_a_method_returns_is_a_stream(client, serve):
    iterators = Iterators()
    serve(iterators)
    assert list(client.multicall(None, "compute", message("numbers", n=100))) == list(range(100))
    iterators.taken.clear()
    with pytest.raises(RemoteError, match="ask for it with multicall"):
        client.call(None, "compute", message("numbers", n=100))
    assert iterators.taken == []
    client.cast(None, "compute", message("numbers", n=3))
    eventually(lambda: iterators.taken == [0, 1, 2])
    assert client.call(None, "compute", message("listed")) == [1, 2], "a list is a value like any other"


class Async:
    """Hands on what is async; that cannot be known before it is called."""

    def coroutine(self, ctx: Any) -> Any:
        async def later() -> int:
            return 1

        return later()

    def generator(self, ctx: Any) -> Any:
        async def later() -> AsyncIterator[int]:
            yield 1

        return later()


@pytest.mark.parametrize(("method", "text"), [("coroutine", "a coroutine"), ("generator", "an async generator")])
def test_what_is_async_is_an_error_that_says_so(client, serve, recwarn, method: str, text: str):
    serve(Async())
    for ask in (client.call, lambda *args: list(client.multicall(*args))):
        with pytest.raises(RemoteError, match=f"{method!r} returned {text}: it is async, .* Write it with plain 'def'"):
            ask(None, "compute", message(method))
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


def test_a_cast_to_a_generator_runs_it(client, serve):
    compute = Compute()
    serve(compute)
    client.cast(None, "compute", message("count", n=100))
    eventually(lambda: compute.ended == ["count"])
    assert compute.seen == list(range(100))


def test_an_exception_comes_after_the_items_before_it(client, serve):
    serve(Compute())
    items = client.multicall(None, "compute", message("count", n=100, fail_at=30))
    assert [next(items) for _ in range(30)] == list(range(30))
    with pytest.raises(LookupError, match="no 30"):
        next(items)
    assert list(items) == []


def test_a_failed_multicall_raises_at_the_first_item(client, serve):
    serve(Compute())
    items = client.multicall(None, "compute", message("nothing"))
    with pytest.raises(UnknownMethod):
        next(items)
    assert list(items) == []


@pytest.mark.parametrize("taken", [0, 1, 20])
@pytest.mark.parametrize("end", ["close", "del"])
def test_an_iteration_given_up_is_cancelled(router, client, serve, taken, end):
    compute = Compute()
    serve(compute)
    items = client.multicall(None, "compute", message("count", n=10_000))
    for n in range(taken):
        assert next(items) == n
    if end == "close":
        items.close()
        assert list(items) == []
    else:
        del items
        gc.collect()
    eventually(lambda: topic(router)["in_flight"] == 0)
    # A method that was not begun by then never is.
    eventually(lambda: compute.ended == ["count"] or not (taken or compute.seen))
    assert len(compute.seen) <= taken + STREAM_WINDOW + 1
    assert router.query("summary")["calls_in_flight"] == 0


def test_a_greenlet_killed_while_it_iterates_cancels_the_call(router, client, serve):
    compute = Compute()
    serve(compute)
    items = client.multicall(None, "compute", message("hold"))
    greenlet = gevent.spawn(next, items)
    assert compute.started.wait(20)
    greenlet.kill()
    eventually(lambda: router.query("summary")["calls_in_flight"] == 0)
    compute.go_on.set()


def test_the_timeout_is_for_each_item(client, serve):
    compute = Compute()

    class Slow:
        def numbers(self, ctx: Any) -> Any:
            for n in range(4):
                yield n
                gevent.sleep(0.8)  # four of these are longer than the timeout
            compute.go_on.wait()

    serve(Slow())
    items = client.multicall(None, "compute", message("numbers"), timeout=3.0)
    assert [next(items) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(CallTimeout, match="running"):
        next(items)
    compute.go_on.set()


def test_a_caller_who_is_slow_is_not_told_that_the_service_is(client, serve):
    serve(Compute())
    got = []
    for item in client.multicall(None, "compute", message("count", n=33), timeout=3.0):
        got.append(item)
        gevent.sleep(0.1)  # 33 of these are longer than the timeout
    assert got == list(range(33))


def test_items_and_results_that_may_not_be_loaded_are_remote_errors(router, serve):
    compute = Compute()
    serve(compute)
    strict = Codec(allow=AllowList())
    with Client(router.url, codec=strict) as client:
        with pytest.raises(RemoteError, match="reply from 'compute' was not decoded"):
            client.call(None, "compute", message("moment"))
        with pytest.raises(RemoteError, match="reply from 'compute' was not decoded"):
            list(client.multicall(None, "compute", message("moments")))


def test_another_format_is_tried_for_a_stream_too(router, connect, serve):
    serve(Compute(), codec=Codec(prefer=Format.JSON, accepted=Format.JSON.bit))
    client = connect()
    assert list(client.multicall(None, "compute", message("count", n=40))) == list(range(40))


def test_threads_take_turns_at_a_stream(client, serve):
    serve(Compute())
    items = client.multicall(None, "compute", message("count", n=40))
    pool = gevent.get_hub().threadpool
    assert [next(items) if n % 2 else pool.apply(next, (items,)) for n in range(40)] == list(range(40))
    assert list(items) == []


@pytest.mark.parametrize("kind", [Stream, rpcmq.aio.stream.Stream])
def test_a_stream_whose_making_a_signal_has_interrupted_can_be_collected(kind: Any) -> None:
    kind.__new__(kind).__del__()
