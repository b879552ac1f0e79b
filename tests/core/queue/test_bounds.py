"""The bounds of a queue in items and bytes, without sockets and disks."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.queues import NewItem
from rpcmq.core.queue.refusals import Full
from rpcmq.store.contract import Maker, Verdict
from tests.core.queue.virtual_store import World


def test_a_full_queue_refuses_with_the_setting(world: World) -> None:
    world.set_policy(max_items=3)
    world.put(b"a", b"b", b"c")
    with pytest.raises(Full) as refusal:
        world.put(b"d")
    assert str(refusal.value) == (
        "queue 'billing' is full (max_items = 3): it keeps 3 items, 0 dead items included;"
        " add workers, drop what is dead, or set max_items higher"
    )
    given = world.taken()
    with pytest.raises(Full):
        world.put(b"d")  # it runs
    world.queue.done(given.fence)
    world.run()
    world.put(b"d")


def test_dead_items_count_until_they_are_dropped(world: World) -> None:
    world.set_policy(max_items=2)
    world.put(b"a", b"b")
    world.queue.rejected(world.now, world.taken().fence, "w", "no")
    world.run()
    with pytest.raises(Full, match="it keeps 2 items, 1 dead items included"):
        world.put(b"c")
    Operators(world.queues).drop(world.now, "billing", lambda count: None)
    world.run()
    world.put(b"c")


def test_items_that_are_not_stored_yet_count(world: World) -> None:
    world.set_policy(max_items=2)
    items = [NewItem(b"m", maker=Maker(7, count)) for count in (1, 2)]
    world.queues.put(world.now, "billing", items, lambda verdicts: None)
    with pytest.raises(Full):
        world.queues.put(world.now, "billing", [NewItem(b"m", maker=Maker(7, 3))], lambda verdicts: None)


def test_bytes_are_bounded_also_in_the_next_life(world: World) -> None:
    world.set_policy(max_bytes=10_000)
    world.put(bytes(4000), bytes(4000))
    world.put(bytes(1000), due=World.wall(world.now + 60))
    with pytest.raises(Full, match=r"\(max_bytes = 10000\): it keeps items of 90\d\d bytes"):
        world.put(bytes(1000))
    world.kill(is_in_order=True)
    with pytest.raises(Full):
        world.put(bytes(1000))
    world.queue.done(world.taken().fence)
    world.run()
    world.put(bytes(1000))
    world.queue.done(world.taken().fence)
    world.queue.done(world.taken().fence)
    world.advance(61)
    world.queue.done(world.taken().fence)
    world.run()
    assert world.queue.figures(world.now)["bytes"] == 0


def test_an_item_that_was_accepted_is_told_so_by_a_full_queue(world: World) -> None:
    world.set_policy(max_items=2)
    items = [NewItem(b"m", maker=Maker(7, count)) for count in (1, 2, 3)]
    answers: list[Any] = []
    for some in (items[:2], items[:2], items):
        world.queues.put(world.now, "billing", some, answers.append, answers.append)
        world.run()
    first, again, refusal = answers
    assert first == [Verdict(1), Verdict(2)] and again == [Verdict(is_known=True)] * 2
    assert isinstance(refusal, Full) and (refusal.setting, refusal.limit) == ("max_items", 2)
