"""Turns at the store: callers in turns, bounded work and bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.client.queue.protocol import Crowded
from rpcmq.queue_server.fair_turns import MOST_BYTES, MOST_WORK, Turns


class Store:
    """Notes what has begun, and ends it when told to."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self.failed: list[tuple[str, BaseException]] = []
        self._ends: list[Callable[[], None]] = []

    def take(self, caller: str, work: int = MOST_WORK, size: int = 0) -> None:
        def begin(end: Callable[[], None]) -> None:
            self.begun.append(caller)
            self._ends.append(end)

        self.turns.take(caller.encode(), work, size, begin, lambda error: self.failed.append((caller, error)))

    def end(self) -> None:
        self._ends.pop(0)()


def test_each_caller_in_its_turn_however_much_one_of_them_asks() -> None:
    store = Store()
    for _ in range(10):
        store.take("much")
    store.take("little", work=1)
    assert store.begun == ["much"]
    store.end()
    assert store.begun == ["much", "little"], "it does not wait for a second one of those"
    for _ in range(10):
        store.end()
    assert len(store.begun) == 11 and not store.turns.size


def test_little_waits_for_little_of_each_of_many_callers_who_ask_for_much() -> None:
    store = Store()
    for number in range(100):
        store.take(f"much {number}")
    for _ in range(3):
        store.take("little", work=100)
    store.end()
    assert store.begun == ["much 0", "little", "little", "little"], "while the others may not yet"
    for _ in range(102):
        store.end()
    assert store.begun[4:] == [f"much {number}" for number in range(1, 100)]
    assert not store.turns.size


def test_much_has_its_turn_beside_many_who_ask_for_little_all_the_time() -> None:
    store = Store()
    store.take("first")
    store.take("much")
    for number in range(20):
        store.take(str(number), work=1000)
    for _ in range(20 * MOST_WORK // 1000 * 2):
        if "much" not in store.begun:
            store.end()
            store.take(store.begun[-1], work=1000)
    assert "much" in store.begun


def test_little_work_goes_on_at_the_same_time() -> None:
    store = Store()
    for number in range(MOST_WORK + 5):
        store.take(str(number % 3), work=1)
    assert len(store.begun) == MOST_WORK
    store.end()
    assert len(store.begun) == MOST_WORK + 1


def test_who_has_more_than_its_share_of_what_waits_is_refused_and_others_are_not() -> None:
    store = Store()
    store.take("much")
    while store.turns.size < MOST_BYTES - (2 << 20):
        store.take("much", size=1 << 20)
    with pytest.raises(Crowded, match="more than its share of 67108864"):
        store.take("much", size=4 << 20)
    store.take("little", size=4 << 20)
    store.end()
    store.end()
    assert store.begun == ["much", "much", "little"]
    store.end()
    store.end()
    store.end()
    store.end()
    store.take("much", size=4 << 20)


def test_one_request_that_is_larger_than_the_bound_has_its_turn() -> None:
    store = Store()
    store.take("a")
    store.take("a", size=2 * MOST_BYTES)
    store.end()
    assert store.begun == ["a", "a"] and not store.turns.size


def test_what_ends_at_once_or_raises_keeps_nobody_waiting() -> None:
    store = Store()
    errors: list[BaseException] = []

    def fails(end: Callable[[], None]) -> None:
        raise RuntimeError("wrong")

    def ends_and_fails(end: Callable[[], None]) -> None:
        end()
        raise RuntimeError("wrong")

    for _ in range(3):
        store.turns.take(b"a", MOST_WORK, 0, lambda end: end(), errors.append)
    store.turns.take(b"a", MOST_WORK, 0, fails, errors.append)
    store.turns.take(b"a", MOST_WORK, 0, ends_and_fails, errors.append)
    assert len(errors) == 2
    store.take("b")
    assert store.begun == ["b"]
    store.take("c")
    assert store.begun == ["b"]


def test_what_one_raises_goes_to_it_and_not_to_whoever_has_ended() -> None:
    store = Store()
    errors: list[BaseException] = []

    def fails(end: Callable[[], None]) -> None:
        raise RuntimeError("wrong")

    store.take("a")
    store.turns.take(b"b", 1, 0, fails, errors.append)
    store.take("c")
    store.end()
    assert [str(error) for error in errors] == ["wrong"]
    assert store.begun == ["a", "c"] and not store.turns.size
