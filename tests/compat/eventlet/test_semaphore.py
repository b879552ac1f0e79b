from __future__ import annotations

from typing import Any

import pytest


def test_it_lets_in_as_many_as_it_counts(eventlet: Any):
    semaphore = eventlet.Semaphore(2)
    assert semaphore.acquire() and semaphore.acquire()
    assert semaphore.locked() and semaphore.acquire(blocking=False) is False
    waiting = [eventlet.spawn(semaphore.acquire) for _ in range(2)]
    eventlet.sleep(0)
    assert (semaphore.counter, semaphore.balance) == (0, -2)
    semaphore.release()
    assert waiting[0].wait() is True
    assert not waiting[1].dead
    semaphore.release()
    waiting[1].wait()


def test_with(eventlet: Any):
    semaphore = eventlet.Semaphore()
    with semaphore:
        assert semaphore.locked()
    assert not semaphore.locked()
    with pytest.raises(KeyError), semaphore:
        raise KeyError
    assert not semaphore.locked()


def test_acquire_for_a_limited_time(eventlet: Any):
    semaphore = eventlet.Semaphore(0)
    assert semaphore.acquire(timeout=0.001) is False
    assert semaphore.balance == 0


def test_the_turn_of_one_who_was_killed_goes_to_the_next(eventlet: Any):
    semaphore = eventlet.Semaphore(0)
    first, second = eventlet.spawn(semaphore.acquire), eventlet.spawn(semaphore.acquire)
    eventlet.sleep(0)
    semaphore.release()
    first.kill()
    assert second.wait() is True


def test_who_was_woken_too_late_stays_first_in_line(eventlet: Any):
    semaphore = eventlet.Semaphore(0)
    order: list[str] = []

    def take(name: str) -> None:
        semaphore.acquire()
        order.append(name)

    threads = [eventlet.spawn(take, name) for name in ("first", "second")]
    eventlet.sleep(0)
    semaphore.release()
    assert semaphore.acquire()
    eventlet.sleep(0)
    assert order == []
    semaphore.release()
    semaphore.release()
    for thread in threads:
        thread.wait()
    assert order == ["first", "second"]


def test_a_negative_count_is_refused(eventlet: Any):
    with pytest.raises(ValueError, match="positive"):
        eventlet.Semaphore(-1)


def test_a_bounded_one_cannot_be_released_too_often(eventlet: Any):
    semaphore = eventlet.semaphore.BoundedSemaphore()
    with semaphore:
        pass
    with pytest.raises(ValueError, match="too many"):
        semaphore.release()


def test_a_capped_one_makes_the_releaser_wait(eventlet: Any):
    semaphore = eventlet.semaphore.CappedSemaphore(1, 2)
    semaphore.release()
    assert semaphore.bounded() and semaphore.release(blocking=False) is False
    releaser = eventlet.spawn(semaphore.release)
    eventlet.sleep(0)
    assert not releaser.dead and semaphore.balance == 3
    semaphore.acquire()
    assert releaser.wait() is True
    assert [semaphore.acquire(blocking=False) for _ in range(3)] == [True, True, False]
