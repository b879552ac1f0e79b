"""Items that are due: many at one moment are read in parts, and those of one queue are in the way of no other."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.queues import NewItem
from rpcmq.store.contract import Maker, Stored
from tests.core.queue.virtual_store import World

#: Items of one lane that may be in memory because they are due, and bytes of them: a page, and the rest of another.
_MOST, _MOST_BYTES = 256 + 128, (4 << 20) + (2 << 20)

_COUNTERS = count(1)


def put_later(world: World, queue: str, items: int, seconds: float = 10.0, **fields: Any) -> list[bytes]:
    messages = [b"%s %d" % (queue.encode(), number) for number in range(items)]
    due = world.wall(world.now + seconds)
    body = fields.pop("padding", b"")
    news = [NewItem(message + body, maker=Maker(7, next(_COUNTERS)), due=due, **fields) for message in messages]
    world.queues.put(world.now, queue, news, lambda verdicts: None)
    world.run()
    return messages


def in_memory(world: World, queue: str) -> list[Stored]:
    return list(world.queues.queue(queue).in_memory)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_many_that_are_due_at_one_moment_are_in_memory_in_parts_only(is_restarted: bool) -> None:
    world = World()
    messages = put_later(world, "billing", 5000)
    if is_restarted:
        world.kill(is_in_order=True)
    world.advance(11.0)
    most, found = 0, []
    while (given := world.take()) is not None:
        found.append(given.message)
        most = max(most, len(in_memory(world, "billing")))
        assert world.queue.done(given.fence)
    assert found == messages
    assert 200 < most <= _MOST
    world.run()
    assert world.queue.tally.items == world.queue.tally.in_hand == 0


def test_large_ones_are_in_memory_by_their_bytes() -> None:
    world = World()
    put_later(world, "billing", 40, padding=bytes(1 << 20))
    world.advance(11.0)
    most = taken = 0
    while (given := world.take()) is not None:
        taken += 1
        most = max(most, sum(len(item.body) for item in in_memory(world, "billing")))
        assert world.queue.done(given.fence)
    assert taken == 40 and (2 << 20) <= most <= _MOST_BYTES + (1 << 20)


def test_those_of_a_queue_that_nobody_works_at_are_in_the_way_of_no_other() -> None:
    world = World()
    put_later(world, "still", 3000, 10.0)
    put_later(world, "billing", 1000, 9.0)
    later = put_later(world, "late", 10, 12.0)
    world.advance(11.0)
    assert len(in_memory(world, "still")) <= _MOST
    assert len(world.take_all()) == 1000
    world.advance(2.0)
    assert [item.body[-len(later[0]) :] for item in in_memory(world, "late")] == later
    assert len(in_memory(world, "still")) <= _MOST


def test_a_full_window_asks_for_nothing_until_it_has_room() -> None:
    world = World()
    put_later(world, "billing", 1000)
    world.advance(11.0)
    assert world.queues.next_deadline() > world.now + 0.2, "it would ask again and again"
    assert not world.port.waiting
    for _ in range(200):
        assert world.queue.take(world.now) is not None
    world.queues.tick(world.now)
    assert world.port.waiting


def test_the_higher_priority_goes_first_also_of_those_that_are_due() -> None:
    world = World()
    put_later(world, "billing", 500)
    urgent = [
        NewItem(b"urgent", maker=Maker(99, number), priority=5, due=world.wall(world.now + 10))
        for number in range(1, 4)
    ]
    world.queues.put(world.now, "billing", urgent, lambda verdicts: None)
    world.run()
    world.advance(11.0)
    assert world.take_all()[:3] == [b"urgent"] * 3


def test_those_that_fail_again_and_again_come_again_and_again() -> None:
    world = World()
    put_later(world, "billing", 600)
    world.advance(11.0)
    for _ in range(2):
        given = []
        while (one := world.take()) is not None:
            given.append(one)
        assert len(given) == 600
        for one in given:
            assert world.queue.failed(world.now, one.fence, "w", "raised", 1.0)
        world.advance(1.1)
    assert len(world.take_all()) == 600


def test_all_that_wait_for_their_time_are_shown_by_their_time() -> None:
    world = World()
    put_later(world, "other", 2000, 5.0)
    put_later(world, "billing", 3, 30.0, priority=7)
    views: list[Any] = []
    put_later(world, "billing", 3, 20.0)
    Operators(world.queues).peek("billing", "postponed", 4, views.extend)
    world.run()
    assert [view.priority for view in views] == [0, 0, 0, 7]
