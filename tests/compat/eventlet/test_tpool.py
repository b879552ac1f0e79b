from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def tpool(eventlet: Any) -> Iterator[Any]:
    module = importlib.import_module("eventlet.tpool")
    yield module
    module.killall()


def test_a_blocking_function_does_not_stop_the_others(eventlet: Any, tpool: Any):
    gate = threading.Event()
    blocked = eventlet.spawn(tpool.execute, gate.wait, 10)
    eventlet.sleep(0.01)
    assert not blocked.dead
    gate.set()
    assert blocked.wait() is True


def test_it_runs_in_another_thread_and_its_own_calls_right_there(tpool: Any):
    here = threading.get_native_id()
    outer, inner = tpool.execute(lambda: (threading.get_native_id(), tpool.execute(threading.get_native_id)))
    assert outer == inner != here


def test_errors_come_back_and_are_not_printed(tpool: Any, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ValueError, match="boom") as caught:
        tpool.execute(int, "boom", base=10)
    assert "boom" in str(caught.value)
    assert capsys.readouterr().err == ""


def test_no_more_than_so_many_threads(eventlet: Any, tpool: Any):
    tpool.killall()
    tpool.set_num_threads(2)
    try:
        threads: set[int] = set()

        def work() -> None:
            time.sleep(0.005)
            threads.add(threading.get_native_id())

        workers = [eventlet.spawn(tpool.execute, work) for _ in range(6)]
        for each in workers:
            each.wait()
        assert len(threads) == 2
    finally:
        tpool.set_num_threads(20)


class Connection:
    label = "db"

    def __init__(self) -> None:
        self.rows = [1, 2, 3]

    def where(self) -> int:
        return threading.get_native_id()

    def cursor(self) -> Connection:
        return Connection()

    def fail(self) -> None:
        raise KeyError("row")

    def __getitem__(self, n: int) -> int:
        return self.rows[n]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows)


def test_a_proxy_runs_methods_in_threads(tpool: Any):
    real = Connection()
    proxy = tpool.Proxy(real)
    assert proxy.where() != threading.get_native_id()
    assert (proxy.label, proxy[1], len(proxy), list(proxy), bool(proxy)) == ("db", 2, 3, [1, 2, 3], True)
    with pytest.raises(KeyError, match="row"):
        proxy.fail()
    with pytest.raises(AttributeError):
        _ = proxy.nonsense
    proxy.label = "other"
    assert real.label == "other"
    assert proxy == real and repr(proxy) == repr(real)


def test_what_a_proxy_gives_can_be_wrapped_too(tpool: Any):
    assert type(tpool.Proxy(Connection()).cursor()) is Connection
    assert type(tpool.Proxy(Connection(), autowrap=(Connection,)).cursor()) is tpool.Proxy
    assert type(tpool.Proxy(Connection(), autowrap_names=("cursor",)).cursor()) is tpool.Proxy


def test_a_proxy_of_a_class_makes_objects(tpool: Any):
    assert tpool.Proxy(Connection)().label == "db"
