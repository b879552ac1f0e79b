from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture
def pools(eventlet: Any) -> Any:
    return importlib.import_module("eventlet.pools")


@pytest.fixture
def numbers(pools: Any) -> type[Any]:
    """A pool of numbers, made in a subclass as connection pools are."""

    class Numbers(pools.Pool):  # type: ignore[misc]
        made = 0

        def create(self) -> int:
            self.made += 1
            return self.made

    return Numbers


def test_objects_are_made_up_to_the_maximum_and_then_waited_for(eventlet: Any, numbers: Any):
    pool = numbers(max_size=2)
    assert (pool.free(), pool.current_size) == (2, 0)
    assert [pool.get(), pool.get()] == [1, 2]
    waiting = [eventlet.spawn(pool.get) for _ in range(2)]
    eventlet.sleep(0)
    assert (pool.free(), pool.waiting(), pool.current_size) == (0, 2, 2)
    pool.put(2)
    pool.put(1)
    assert [thread.wait() for thread in waiting] == [2, 1]
    assert pool.made == 2


@pytest.mark.parametrize(("as_stack", "first"), [(False, 1), (True, 2)])
def test_the_order_of_reuse(numbers: Any, as_stack: bool, first: int):
    pool = numbers(max_size=2, order_as_stack=as_stack)
    one, two = pool.get(), pool.get()
    pool.put(one)
    pool.put(two)
    assert pool.get() == first
    assert numbers().order_as_stack is False


def test_min_size_makes_some_at_once(numbers: Any):
    pool = numbers(min_size=3)
    assert list(pool.free_items) == [1, 2, 3] and pool.current_size == 3


def test_item_gives_back_even_after_an_error(numbers: Any):
    pool = numbers(max_size=1)
    with pytest.raises(KeyError), pool.item():
        raise KeyError
    assert pool.free() == 1 and list(pool.free_items) == [1]


def test_a_failure_to_make_one_does_not_use_up_the_pool(pools: Any):
    outcomes = [ValueError("no"), "yes"]

    def create() -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    pool = pools.Pool(max_size=1, create=create)
    with pytest.raises(ValueError, match="no"):
        pool.get()
    assert pool.current_size == 0
    assert pool.get() == "yes"


def test_a_slow_create_does_not_make_too_many(eventlet: Any, pools: Any):
    made: list[int] = []

    def create() -> int:
        made.append(1)
        eventlet.sleep(0.001)
        return len(made)

    pool = pools.Pool(max_size=1, create=create)
    first, second = eventlet.spawn(pool.get), eventlet.spawn(pool.get)
    pool.put(first.wait())
    assert second.wait() == 1 and made == [1]


def test_after_a_smaller_resize_some_are_dropped(numbers: Any):
    pool = numbers(max_size=2)
    one, two = pool.get(), pool.get()
    pool.resize(1)
    pool.put(one)
    pool.put(two)
    assert (pool.current_size, list(pool.free_items)) == (1, [2])


def test_a_pool_without_create_says_so(pools: Any):
    with pytest.raises(NotImplementedError):
        pools.Pool().get()


def test_tokens_limit(eventlet: Any, pools: Any):
    pool = pools.TokenPool(max_size=1)
    with pool.item():
        second = eventlet.spawn(pool.get)
        eventlet.sleep(0)
        assert not second.dead
    second.wait()


def test_an_item_for_one_who_was_killed_is_not_lost(eventlet: Any, numbers: Any):
    pool = numbers(max_size=1)
    item = pool.get()
    waiting = eventlet.spawn(pool.get)
    eventlet.sleep(0)
    pool.put(item)
    waiting.kill()
    assert pool.get() == item
