"""Threads whose answers are there are woken a few at once, by one another, and all where they do not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rpcmq.testing.processes import Program
from rpcmq.transport import thread_wakes
from rpcmq.transport.thread_wakes import PATIENCE, WakeQueue
from tests.client.endpoints import Compute


def queue_of(count: int) -> tuple[WakeQueue, list[int]]:
    queue, woken = WakeQueue(), list[int]()
    queue.waiting.extend(wakes(woken, n) for n in range(count))
    return queue, woken


def wakes(woken: list[int], n: int) -> Callable[[], object]:
    return lambda: woken.append(n)


def test_a_few_are_woken_at_once_and_each_wakes_another_one():
    queue, woken = queue_of(5)
    assert queue.wake_some(10.0)
    assert woken == [0, 1]
    for _ in range(3):
        queue.wake_next()
    assert woken == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError):
        queue.wake_next()
    assert not queue.wake_some(10.1)


def test_of_many_one_is_woken_at_once_where_each_wakes_another_in_one_step(monkeypatch):
    monkeypatch.setattr(thread_wakes, "_MANY", 4)
    queue, woken = queue_of(5)
    assert queue.wake_some(10.0)
    assert woken == [0]
    queue.wake_next()
    assert queue.wake_some(10.0 + PATIENCE)
    assert woken == [0, 1, 2, 3]


def test_all_are_woken_if_those_that_were_wake_nobody():
    queue, woken = queue_of(10)
    assert queue.wake_some(10.0)
    assert not queue.wake_some(10.0 + 2 * PATIENCE)
    assert woken == list(range(10))
    # So are those that come soon after.
    queue.waiting.extend(wakes(woken, n) for n in range(10, 20))
    assert not queue.wake_some(10.0 + 3 * PATIENCE)
    assert woken == list(range(20))
    queue.waiting.extend(wakes(woken, n) for n in range(20, 30))
    assert queue.wake_some(11.0)
    assert woken == list(range(22))


def test_those_that_go_on_waking_one_another_are_left_alone():
    queue, woken = queue_of(10)
    now = 10.0
    assert queue.wake_some(now)
    queue.wake_next()
    assert queue.wake_some(now + 2 * PATIENCE)
    assert woken == [0, 1, 2, 3, 4]


def test_a_thread_that_was_woken_already_does_not_keep_the_next_one_from_it():
    queue, woken = WakeQueue(), list[int]()
    lock = threading.Lock()
    queue.waiting.extend([lock.release, wakes(woken, 1), lock.release, wakes(woken, 2)])
    with pytest.raises(RuntimeError):
        queue.wake_next()
    queue.wake_all()
    assert woken == [1, 2]
    assert not queue.waiting


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("calls_at_once", ["[] 3200 0"]),
        ("does_something_else", ["[] 320 0"]),
        ("interrupted", ["[] 2400 0"]),
    ],
)
def test_many_threads(router, serve, scenario, said):
    serve(Compute())
    program = Path(__file__).parent.parent / "threads" / "programs" / "crowd.py"
    with Program([sys.executable, str(program), router.url, scenario], {}, name=scenario) as crowd:
        assert crowd.wait(90) == 0, crowd.said()
        assert crowd.lines == said
