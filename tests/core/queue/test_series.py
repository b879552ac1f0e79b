"""Series of items: one runs at a time, in their order, whatever comes back or dies."""

from __future__ import annotations

import pytest

from tests.core.queue.virtual_store import World


def test_of_a_series_one_runs_at_a_time_and_others_go_on(world: World) -> None:
    world.put(b"a1", b"a2", b"a3", series=b"a")
    world.put(b"b1", series=b"b")
    first, other = world.taken(), world.taken()
    assert (first.message, other.message) == (b"a1", b"b1")
    assert world.take() is None
    world.queue.done(first.fence)
    second = world.taken()
    assert second.message == b"a2"
    world.queue.failed(world.now, second.fence, "w", "raised")
    assert world.taken().message == b"a3"


def test_what_comes_back_goes_before_what_was_put_later_in_its_series(world: World) -> None:
    world.put(b"1", b"2", b"3", b"4", series=b"a")
    for _ in range(3):
        given = world.taken()
        assert given.message == b"1" and world.take() is None
        world.queue.not_begun(given.fence)
    first = world.taken()
    assert world.take() is None
    world.queue.failed(world.now, first.fence, "w", "raised", 0.5)
    second = world.taken()
    world.advance(1.0)
    assert second.message == b"2" and world.take() is None
    world.queue.done(second.fence)
    again = world.taken()
    assert (again.message, again.attempt) == (b"1", 2)


def test_of_a_series_whose_worker_is_lost_nothing_runs_before_the_end_of_its_lease(world: World) -> None:
    world.set_policy(lease=10.0)
    world.put(b"1", b"2", series=b"a")
    first = world.taken()
    world.queue.lost(world.now, first.fence, "w", "killed")
    world.put(b"other")
    assert world.take_all() == [b"other"]
    assert world.queue.next_deadline(world.now) == world.now + 10.0
    world.advance(9.9)
    assert world.take() is None
    world.advance(0.2)
    second = world.taken()
    assert second.message == b"2" and world.take() is None
    world.queue.done(second.fence)
    assert world.taken().message == b"1"


def test_an_end_in_order_does_not_forget_that_an_item_of_a_series_may_still_run(world: World) -> None:
    world.set_policy(lease=10.0)
    world.put(b"1", b"2", series=b"a")
    world.queue.lost(world.now, world.taken().fence, "w", "killed")
    world.kill(is_in_order=True)
    assert world.take() is None
    world.advance(10.1)
    assert world.taken().message == b"1"


@pytest.mark.parametrize("count", [3, 1500])
def test_after_a_death_no_item_of_a_series_runs_before_the_lease_is_over_and_then_they_come_in_order(
    world: World, count: int
) -> None:
    world.set_policy(lease=10.0)
    world.put(b"0", b"1", series=b"a")
    assert world.taken().message == b"0"
    world.kill()
    world.put(*(b"%d" % number for number in range(2, count)), series=b"a")
    if count < 1000:
        world.put(b"other")
        assert world.take_all() == [b"other"]
    assert world.take() is None
    world.advance(10.1)
    found = []
    while (given := world.take()) is not None:
        assert world.take() is None
        found.append(given.message)
        world.queue.done(given.fence)
    assert found == [b"%d" % number for number in range(count)]
