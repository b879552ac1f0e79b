"""Casts of plain threads that wait for the router's confirmation: beside one another, and without the lock."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rpcmq.threads
from rpcmq.errors import CallTimeout, Overloaded, RpcError
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.client.endpoints import Compute, message


@pytest.fixture(scope="module")
def daemon() -> Iterator[RouterProcess]:
    with RouterProcess() as process:
        yield process


@pytest.fixture
def client(daemon: RouterProcess) -> Iterator[rpcmq.threads.Client]:
    with rpcmq.threads.Client(daemon.url, linger_seconds=20) as client:
        client.connect(20)
        yield client


@pytest.fixture
def compute(daemon: RouterProcess) -> Iterator[Compute]:
    endpoint = Compute()
    with rpcmq.threads.Service("compute", endpoint, router=daemon.url):
        yield endpoint


@pytest.fixture
def paused(daemon: RouterProcess) -> Iterator[None]:
    """The router is silent."""
    daemon.pause()
    yield
    daemon.resume()


def cast(client: rpcmq.threads.Client, value: object, ctx: object = None, timeout: float = 20) -> None:
    client.cast(ctx, "compute", message("note", value=value), confirm=True, timeout=timeout)


def together(count: int, function: Callable[[int], object]) -> list[object]:
    """What ``function`` has returned or raised in each of so many threads, which begin at once."""
    ended: list[object] = []
    begin = threading.Barrier(count)

    def run(number: int) -> None:
        begin.wait(20)
        try:
            ended.append(function(number))
        except RpcError as error:
            ended.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return ended


def test_those_of_many_threads_are_run_once_each(client, compute):
    def cast_some(number: int) -> None:
        for n in range(25):
            cast(client, number * 100 + n)

    assert together(8, cast_some) == [None] * 8
    eventually(lambda: len(compute.seen) == 200)
    assert set(compute.seen) == {number * 100 + n for number in range(8) for n in range(25)}
    assert together(8, lambda number: client.fanout_cast(None, "compute", message("note", value=0), confirm=True)) == (
        [1] * 8
    )


@pytest.mark.parametrize("count", [1, 4])
def test_nobody_holds_the_lock_meanwhile(client, compute, count):
    held: list[bool] = []

    class Context:
        def to_dict(self) -> dict[str, Any]:
            held.append(client.shell.monitor.is_held())
            return {}

    assert together(count, lambda number: cast(client, number, Context())) == [None] * count
    assert held == [False] * count


@pytest.mark.parametrize("count", [1, 4])
def test_one_that_is_not_confirmed_in_time(client, paused, count):
    ended = together(count, lambda number: cast(client, number, timeout=0.1))
    assert [type(error) for error in ended] == [CallTimeout] * count
    assert "has not confirmed the cast to 'compute' within 0.1 s; it may still be delivered" in str(ended[0])
    assert not client.process.calls.open


def test_more_than_the_window_takes_are_not_sent(daemon):
    with rpcmq.threads.Client(daemon.url, linger_seconds=20, cast_window=3) as client:
        client.connect(20)
        daemon.pause()
        try:
            ended = Counter(map(type, together(8, lambda number: cast(client, number, timeout=0.2))))
            assert ended == {CallTimeout: 3, Overloaded: 5} and client.process.casts.open == 3
        finally:
            daemon.resume()


def test_an_interrupted_wait_leaves_nothing_open(client, paused):
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            cast(client, 1)
    finally:
        signal.signal(signal.SIGALRM, before)
    eventually(lambda: not client.process.calls.open)
