"""The results of items, kept and told, without sockets and disks."""

from __future__ import annotations

from rpcmq.core.queue.cancelling import cancel
from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.results import Outcome
from tests.core.queue.virtual_store import World


def asked(world: World, number: int, id: str = "") -> Outcome:
    outcomes: list[Outcome] = []
    world.queue.results.ask(0, number, outcomes.append, id)
    world.run()
    (outcome,) = outcomes
    return outcome


def waits(world: World, number: int, id: str = "", origin: bytes = b"") -> list[Outcome]:
    outcomes: list[Outcome] = []
    world.queue.results.wait(0, number, outcomes.append, id=id, origin=origin)
    return outcomes


def test_a_result_is_kept_for_its_time_also_in_the_next_life(world: World) -> None:
    world.put(b"kept", keep_result=100.0)
    world.put(b"not kept")
    assert asked(world, 1) == Outcome("waiting")
    first, second = world.taken(), world.taken()
    assert asked(world, 1) == Outcome("running") and (first.keep_result, second.keep_result) == (100_000, 0)
    world.queue.done(first.fence, result=b"42", now=world.now)
    world.queue.done(second.fence, result=b"43", now=world.now)
    assert asked(world, 1) == Outcome("done", b"42")
    unknown = asked(world, 2)
    assert (unknown.state, unknown.result) == ("unknown", None) and "no result of it is kept" in unknown.text
    world.kill()
    assert asked(world, 1) == Outcome("done", b"42")
    world.advance(99)
    assert asked(world, 1) == Outcome("done", b"42")
    world.advance(61)
    assert asked(world, 1).state == "unknown" and world.queue.results.size == 0


def test_the_reason_of_a_dead_item_is_known_while_it_is_dead(world: World) -> None:
    world.put(b"a")
    world.queue.rejected(world.now, world.taken().fence, "w", "no such invoice")
    assert asked(world, 1) == Outcome("dead", text="rejected: no such invoice")
    Operators(world.queues).drop(world.now, "billing", lambda count: None)
    world.run()
    assert asked(world, 1).state == "unknown"


def test_whoever_waits_is_told_of_the_end_once_it_is_durable(world: World) -> None:
    world.set_policy(attempts=1)
    world.put(b"done", b"dead", b"cancelled", b"expired", expires=World.wall(world.now + 50))
    outcomes = [waits(world, number) for number in (1, 2, 3, 4)]
    world.run()
    assert outcomes == [[], [], [], []]
    world.queue.done(world.taken().fence, result=b"42")
    assert outcomes[0] == []
    world.queue.failed(world.now, world.taken().fence, "w", "raised")
    cancel(world.queues, world.now, "billing", 0, 3, lambda answer: None)
    world.run()
    world.advance(60)
    assert world.take() is None
    assert outcomes == [
        [Outcome("done", b"42")], [Outcome("dead", text="failed: raised")], [Outcome("cancelled")],
        [Outcome("dead", text="expired: nobody wanted it any more")],
    ]  # fmt: skip


def test_whoever_waits_for_what_has_ended_is_told_at_once(world: World) -> None:
    world.put(b"a", keep_result=60)
    given = world.taken()
    both = waits(world, 1)
    world.queue.done(given.fence, result=b"42", now=world.now)
    world.run()
    late = waits(world, 1)
    world.run()
    assert both == late == [Outcome("done", b"42")]
    assert world.queue.results._room.count == 0 and not world.queue.results._askers


def test_whoever_does_not_wait_any_more_is_forgotten(world: World) -> None:
    world.put(b"a")
    outcomes: list[Outcome] = []
    forget = world.queue.results.wait(0, 1, outcomes.append)
    world.run()
    forget()
    forget()
    world.queue.done(world.taken().fence)
    world.run()
    assert not outcomes and world.queue.results._room.count == 0


def test_where_too_many_wait_the_others_hear_what_is_known_now(world: World) -> None:
    world.put(b"ended", b"waits", keep_result=60)
    world.queue.done(world.taken().fence, result=b"42", now=world.now)
    first = waits(world, 2)
    for _ in range(9_999):
        waits(world, 2)
    late, refused = waits(world, 1), waits(world, 2)
    world.run()
    assert late == [Outcome("done", b"42")] and [each.state for each in refused] == ["refused"]
    cancel(world.queues, world.now, "billing", 0, 2, lambda answer: None)
    world.run()
    assert first == [Outcome("cancelled")] and len(refused) == 1
    assert world.queue.results._room.count == world.queue.results.room.count == 0


def test_one_process_cannot_take_all_the_room_of_those_who_wait(world: World) -> None:
    world.put(b"waits", keep_result=60)
    results = world.queue.results
    greedy: list[Outcome] = []
    for _ in range(10_000):
        results.wait(0, 1, greedy.append, origin=b"greedy")
    honest = [waits(world, 1, origin=b"honest %d" % number) for number in range(3)]
    world.run()
    assert [each.state for each in greedy] == ["refused"] * 3, "its oldest make way"
    assert honest == [[], [], []]
    results.wait(0, 1, greedy.append, origin=b"greedy")
    world.run()
    assert len(greedy) == 4 and results._room.count == results.room.count == 10_000
    world.queue.done(world.taken().fence, result=b"42", now=world.now)
    world.run()
    assert honest == [[Outcome("done", b"42")]] * 3 and len(greedy) == 10_001
    assert results._room.count == results.room.count == 0 and not results._room._waits


def test_all_queues_of_an_owner_share_the_room_of_those_who_wait(world: World) -> None:
    world.put(b"x")
    for name in ("a", "b"):
        for number in range(10_000):
            world.queues.queue(name).results.wait(0, number, lambda outcome: None)
    refused = waits(world, 1)
    world.run()
    assert [each.state for each in refused] == ["refused"]
    # The others have heard that there is no such item.
    assert world.queue.results.room.count == 0
    assert waits(world, 1) == [] and world.queue.results.room.count == 1


def test_a_cancelled_item_whose_result_was_to_be_kept_is_told_as_such(world: World) -> None:
    world.put(b"a", keep_result=60)
    cancel(world.queues, world.now, "billing", 0, 1, lambda answer: None)
    world.run()
    assert asked(world, 1) == Outcome("cancelled")


def test_results_are_bounded(world: World) -> None:
    world.set_policy(max_result_bytes=(1 << 20) + 1000)
    world.put(b"a", b"b", b"c", keep_result=60)
    for size in ((1 << 20) + 1, 700, 700):
        world.queue.done(world.taken().fence, result=bytes(size), now=world.now)
    assert asked(world, 1) == Outcome("done", text="its result of 1048577 bytes is not kept: 1048576 are the most")
    world.set_policy(max_result_bytes=1000)
    world.put(b"d", keep_result=60)
    world.queue.done(world.taken().fence, result=b"", now=world.now)
    assert asked(world, 4).state == "unknown"
    assert world.queue.figures(world.now)["counters"]["results not kept"] == 1


def test_whoever_waits_for_an_item_that_is_moved_is_told(world: World) -> None:
    world.put(b"a")
    outcomes = waits(world, 1)
    Operators(world.queues).move_ready(world.now, "billing", "other", lambda count: None)
    world.run()
    assert outcomes == [Outcome("unknown", text="it was moved to queue 'other'")]


def test_of_another_item_in_that_place_nothing_is_told(world: World) -> None:
    world.put(b"a", id=b"invoice-1", keep_result=60)
    assert asked(world, 1, "invoice-1") == Outcome("waiting")
    assert asked(world, 1, "invoice-2").state == "unknown"
    # These have not heard from the store yet when the item ends.
    ours, others = waits(world, 1, "invoice-1"), waits(world, 1, "invoice-2")
    world.queue.done(world.taken().fence, result=b"42", now=world.now)
    world.run()
    assert ours == [Outcome("done", b"42")] and [each.state for each in others] == ["unknown"]
    assert asked(world, 1, "invoice-1") == asked(world, 1) == Outcome("done", b"42")
    assert asked(world, 1, "invoice-2") == others[0]
    assert world.queue.results._room.count == 0
