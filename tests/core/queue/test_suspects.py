"""Items that were lost with their worker come back one after the other."""

from __future__ import annotations

from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.suspects import Suspects
from tests.core.queue.virtual_store import World


def test_they_come_one_by_one_but_none_later_than_a_second_lease() -> None:
    suspects = Suspects()
    assert [suspects.delay(100.0, 3.0) for _ in range(6)] == [3.0, 4.0, 5.0, 6.0, 6.0, 6.0]
    assert suspects.delay(105.0, 3.0) == 3.0
    assert suspects.delay(200.0, 3.0) == 3.0


def test_those_that_ran_beside_a_killer_do_not_die_with_it() -> None:
    """A worker with eight items dies; then one of these kills each worker that has it, with all that it runs."""
    world = World()
    world.queues.declare(world.now, "billing", Policy(), lambda: None)
    world.put(b"poison", *[b"innocent %d" % number for number in range(7)])
    for each in [world.take() for _ in range(8)]:
        assert each is not None
        world.queue.lost(world.now, each.fence, "worker-1", "killed")
    seen: list[bytes] = []
    for _ in range(400):
        world.advance(0.25)
        together = []
        while (given := world.take()) is not None:
            together.append(given)
        kills = any(each.message == b"poison" for each in together)
        for each in together:
            seen.append(each.message)
            if kills:
                world.queue.lost(world.now, each.fence, "worker-2", "killed")
            else:
                world.queue.done(each.fence)
    assert len(set(seen)) == 8 and [message for message in seen if seen.count(message) > 1] == [b"poison"] * 2
    assert world.queue.counters["done"] == 7 and world.queue.counters["dead"] == 1
