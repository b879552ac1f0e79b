"""Items that nobody wants any more, without sockets and disks."""

from __future__ import annotations

from rpcmq.core.queue.cancelling import cancel
from rpcmq.core.queue.policy import Policy
from tests.core.queue.virtual_store import World


def cancelled(world: World, number: int, priority: int = 0, id: str = "") -> str:
    answers: list[str] = []
    cancel(world.queues, world.now, "billing", priority, number, answers.append, id)
    world.run()
    (answer,) = answers
    return answer


def test_an_item_that_waits_is_cancelled(world: World) -> None:
    world.put(*(b"%d" % number for number in range(1, 601)))
    world.put(b"later", due=World.wall(world.now + 5))
    world.put(b"urgent", priority=9)
    assert [cancelled(world, number) for number in (2, 300, 600, 601)] == ["cancelled"] * 4
    assert cancelled(world, 1, 9) == "cancelled"
    assert [cancelled(world, number) for number in (2, 300, 700)] == ["ended"] * 3
    world.advance(6)
    assert world.take_all() == [b"%d" % number for number in range(1, 600) if number not in (2, 300)]
    figures = world.queue.figures(world.now)
    assert (figures["ready"], figures["postponed"], figures["counters"]["cancelled"]) == (0, 0, 5)


def test_an_item_that_runs_or_is_dead_is_not_cancelled(world: World) -> None:
    world.queues.declare(world.now, "billing", Policy(attempts=2, backoff=5.0), lambda: None)
    world.put(b"a", b"b")
    given = world.taken()
    assert cancelled(world, 1) == "running"
    world.queue.failed(world.now, given.fence, "w", "raised")
    assert cancelled(world, 1) == "cancelled"  # it waits for the next attempt
    second = world.taken()
    world.queue.rejected(world.now, second.fence, "w", "no")
    assert cancelled(world, 2) == "dead"
    world.advance(10)
    assert world.take() is None


def test_an_item_that_is_done_at_that_moment_has_ended(world: World) -> None:
    world.put(b"a")
    world.queue.done(world.taken().fence)
    assert cancelled(world, 1) == "ended"


def test_an_item_is_not_given_while_it_is_cancelled(world: World) -> None:
    world.put(b"a", b"b")
    first = world.taken()
    world.queue.not_begun(first.fence)
    answers: list[str] = []
    for _ in range(2):
        cancel(world.queues, world.now, "billing", 0, 1, answers.append)
    assert world.taken().message == b"b" and world.queue.take(world.now) is None
    world.run()
    assert answers == ["running", "cancelled"] or answers == ["cancelled", "running"]
    assert world.take() is None and world.queue.figures(world.now)["ready"] == 0


def test_an_item_of_a_series_that_waits_for_another_is_cancelled(world: World) -> None:
    world.put(b"a", b"b", b"c", series=b"s")
    first = world.taken()
    assert world.take() is None
    assert cancelled(world, 2) == "cancelled"
    world.queue.done(first.fence)
    assert world.take_all() == [b"c"]


def test_an_item_that_a_worker_may_run_since_a_former_life_is_not_cancelled(world: World) -> None:
    world.put(b"delayed", due=World.wall(world.now + 5))
    world.advance(6)
    world.taken()
    world.kill()
    assert cancelled(world, 1) == "running"
    world.advance(31)
    world.put(b"a")
    assert {world.taken().message, world.taken().message} == {b"a", b"delayed"}
    world.kill()
    assert cancelled(world, 2) == "running" and cancelled(world, 9) == "ended"
    world.put(*(b"%d" % number for number in range(2000)))
    assert cancelled(world, 1900) == "cancelled"
    world.advance(31)
    assert cancelled(world, 2) == "cancelled"


def test_another_item_in_that_place_is_not_cancelled(world: World) -> None:
    world.put(b"a", id=b"invoice-1")
    world.put(b"b")
    for number, id in ((1, "invoice-2"), (1, "1-1"), (2, "invoice-1"), (2, "7-1")):
        assert cancelled(world, number, id=id) == "ended"
    assert world.queue.figures(world.now)["ready"] == 2
    assert [cancelled(world, number, id=id) for number, id in ((1, "invoice-1"), (2, "7-2"))] == ["cancelled"] * 2
