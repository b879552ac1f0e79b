"""Threads that wake one another before they wait: in one step in the compiled wheel, in two elsewhere."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import gevent
import pytest

from rpcmq.transport.handoff import HandoffLock, new_handoff_lock, wake_next_and_acquire

in_one_step = pytest.mark.skipif(HandoffLock is None, reason="needs the compiled wheel (make test-wheel)")


@pytest.fixture
def threads() -> Iterator[Callable[..., threading.Thread]]:
    started: list[threading.Thread] = []

    def start(function: Callable[..., object], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=function, args=args, daemon=True)
        thread.start()
        started.append(thread)
        return thread

    yield start
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


def test_a_lock_is_held_and_wakes_who_waits_or_will_wait(threads: Callable[..., threading.Thread]) -> None:
    made: SimpleQueue[Any] = SimpleQueue()

    def wait_twice() -> None:
        lock = new_handoff_lock()
        made.put(lock)
        lock.acquire()
        made.put(None)
        lock.acquire()

    thread = threads(wait_twice)
    lock = made.get(timeout=20)
    assert made.empty() and thread.is_alive()
    lock.release()
    made.get(timeout=20)
    lock.release()
    thread.join(20)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


@in_one_step
def test_a_ring_of_threads_in_which_each_wakes_the_next(threads: Callable[..., threading.Thread]) -> None:
    count, rounds = 8, 500
    locks = [HandoffLock() for _ in range(count)]
    turns: list[int] = []
    waiting: deque[Callable[[], object]] = deque()

    def run(number: int) -> None:
        locks[number].acquire()
        for _ in range(rounds):
            turns.append(number)
            waiting.append(locks[(number + 1) % count].release)
            assert wake_next_and_acquire(waiting, locks[number])
        locks[(number + 1) % count].release()

    ring = [threads(run, number) for number in range(count)]
    locks[0].release()
    for thread in ring:
        thread.join(60)
    assert turns == [*range(count)] * rounds


def test_a_wait_that_is_over_before_the_lock_was_released() -> None:
    lock = new_handoff_lock()
    assert not lock.acquire(True, 0.01)
    lock.release()
    assert lock.acquire(True, 20) and not lock.acquire(False)


@in_one_step
def test_the_next_one_is_woken_also_where_the_wait_is_over_in_time() -> None:
    lock, called = HandoffLock(), list[int]()
    assert wake_next_and_acquire(deque([lambda: called.append(1)]), lock, 0.01)
    assert called == [1] and not lock.acquire(False)


@in_one_step
def test_where_nobody_waits_nothing_is_waited_for() -> None:
    assert not wake_next_and_acquire(deque(), HandoffLock())


@in_one_step
def test_one_that_was_woken_already_does_not_keep_the_next_one_from_it() -> None:
    woken, lock, plain = HandoffLock(), HandoffLock(), threading.Lock()
    woken.release()
    called: list[int] = []
    waiting = deque([woken.release, plain.release, lambda: called.append(1), lambda: called.append(2)])
    lock.release()
    assert wake_next_and_acquire(waiting, lock)
    assert called == [1] and len(waiting) == 1


@in_one_step
def test_what_a_function_raises_comes_out_and_nothing_is_waited_for() -> None:
    with pytest.raises(ZeroDivisionError):
        wake_next_and_acquire(deque([lambda: 1 / 0]), HandoffLock())
    wrong: list[tuple[Any, ...]] = [(), (deque(), threading.Lock()), (deque(), None)]
    for arguments in wrong:
        with pytest.raises(TypeError):
            wake_next_and_acquire(*arguments)
    with pytest.raises(AttributeError):
        wake_next_and_acquire(None, HandoffLock())
    with pytest.raises(TypeError):
        HandoffLock(1)
    with pytest.raises(TypeError):
        HandoffLock(held=True)


@in_one_step
def test_a_signal_ends_the_wait_and_the_next_one_was_woken(threads: Callable[..., threading.Thread]) -> None:
    other, lock = HandoffLock(), HandoffLock()
    thread = threads(other.acquire)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            wake_next_and_acquire(deque([other.release]), lock)
    finally:
        signal.signal(signal.SIGALRM, before)
    thread.join(20)
    assert not thread.is_alive()
    lock.release()
    lock.acquire()


@in_one_step
def test_nothing_is_kept_and_a_lock_may_go_while_it_is_held() -> None:
    lock, waiting = HandoffLock(), deque[Callable[[], object]]()
    before = sys.getrefcount(lock), sys.getrefcount(waiting)
    for _ in range(100):
        other = HandoffLock()
        waiting.append(other.release)
        lock.release()
        assert wake_next_and_acquire(waiting, lock)
        assert sys.getrefcount(other) == 2
        HandoffLock()
    gc.collect()
    assert (sys.getrefcount(lock), sys.getrefcount(waiting)) == before


def test_in_a_hub_the_other_greenlets_go_on() -> None:
    gevent.get_hub()
    lock = new_handoff_lock()
    assert type(lock) is not HandoffLock
    gevent.spawn(lock.release)
    lock.acquire()
