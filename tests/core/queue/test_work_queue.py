"""One work queue, without sockets and disks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.story import Story
from rpcmq.store.contract import Position, Stored
from tests.core.queue.virtual_store import World


def stories(world: World) -> list[Story]:
    dead = world.store.read_dead("billing", Position(), 100, 1 << 20)
    return [Story.from_bytes(each.state) for each in dead if isinstance(each, Stored)]


# --- order -----------------------------------------------------------------------------------------


def test_the_higher_priority_goes_first_and_then_the_older(world: World) -> None:
    world.put(b"a", b"b")
    world.put(b"urgent", priority=9)
    world.put(b"c")
    assert world.take_all() == [b"urgent", b"a", b"b", b"c"]


def test_more_items_than_fit_into_memory_come_in_their_order(world: World) -> None:
    messages = [b"%d" % number for number in range(3000)]
    for start in range(0, 3000, 100):
        world.put(*messages[start : start + 100])
    assert world.take_all() == messages


def test_an_item_that_is_delayed_comes_when_it_is_due(world: World) -> None:
    world.put(b"later", due=World.wall(world.now + 60))
    world.put(b"sooner", due=World.wall(world.now + 30))
    world.put(b"past", due=World.wall(world.now - 30))
    assert world.take_all() == [b"past"]
    assert world.queues.next_deadline() == pytest.approx(world.now + 30, abs=0.01)
    world.advance(29)
    assert world.take_all() == []
    world.advance(1.1)
    assert world.take_all() == [b"sooner"]
    world.advance(30)
    assert world.take_all() == [b"later"]


def test_an_item_that_expires_before_its_turn_is_dead(world: World) -> None:
    world.put(b"short", expires=World.wall(world.now + 5))
    world.put(b"long", expires=World.wall(world.now + 500))
    world.advance(6)
    assert world.take_all() == [b"long"]
    world.run()
    assert [story.endings[0].outcome for story in stories(world)] == ["expired"]
    assert world.queue.counters["expired"] == 1


def test_concurrency_rate_and_pause(world: World) -> None:
    world.set_policy(concurrency=2, rate=2.0)
    world.put(*(b"%d" % number for number in range(10)))
    first, second = world.taken(), world.taken()
    assert world.take() is None
    world.queue.done(first.fence)
    world.queue.done(second.fence)
    assert world.take() is None  # two a second
    world.advance(0.6)
    assert world.taken().message == b"2"
    world.queue.is_paused = True
    world.advance(10)
    assert world.take() is None
    world.queue.is_paused = False
    assert world.taken().message == b"3"


# --- ends ------------------------------------------------------------------------------------------


def test_of_deaths_those_are_told_of_which_no_worker_knows(world: World) -> None:
    untold: list[str] = []
    world.set_policy(attempts=1, losses=1)
    world.queue.on_untold_death = untold.append
    world.put(b"known", b"rejected", b"malformed", b"fewer attempts", b"lost")
    world.queue.failed(world.now, world.taken().fence, "worker", "raised")
    world.queue.rejected(world.now, world.taken().fence, "worker", "not this one")
    world.queue.failed(world.now, world.taken().fence, "", "the worker's answer is malformed")
    world.set_policy(attempts=2, losses=1)
    given = world.taken()
    world.set_policy(attempts=1, losses=1)
    world.queue.failed(world.now, given.fence, "worker", "raised")
    world.queue.lost(world.now, world.taken().fence, "worker", "went away")
    world.run()
    assert untold == ["failed", "failed", "lost"]


def test_an_item_that_fails_is_tried_again_later_and_later_and_is_dead_at_last(world: World) -> None:
    world.set_policy(attempts=3, backoff=10.0, backoff_factor=3.0)
    world.put(b"a")
    for attempt, pause in ((1, 10), (2, 30)):
        given = world.taken()
        assert given.attempt == attempt
        assert world.queue.failed(world.now, given.fence, "worker-1", f"raised {attempt}")
        world.advance(pause - 1)
        assert world.take() is None
        world.advance(1.1)
    assert world.queue.failed(world.now, world.taken().fence, "worker-2", "raised 3")
    world.advance(1000)
    assert world.take() is None
    (story,) = stories(world)
    assert [(each.worker, each.outcome, each.text) for each in story.endings] == [
        ("worker-1", "failed", "raised 1"), ("worker-1", "failed", "raised 2"), ("worker-2", "failed", "raised 3"),
    ]  # fmt: skip


def test_a_worker_says_when_to_try_again_or_that_it_is_of_no_use(world: World) -> None:
    world.put(b"a", b"b")
    again, useless = world.taken(), world.taken()
    world.queue.failed(world.now, again.fence, "w", "not yet", again=5.0)
    world.queue.rejected(world.now, useless.fence, "w", "no such invoice")
    world.advance(4.9)
    assert world.take() is None
    world.advance(0.2)
    assert world.taken().message == b"a"
    assert [story.endings[0].outcome for story in stories(world)] == ["rejected"]


def test_an_item_whose_worker_is_lost_is_given_to_another_one_and_is_dead_in_the_end(world: World) -> None:
    world.set_policy(losses=2)
    world.put(b"poison")
    first = world.taken()
    world.queue.lost(world.now, first.fence, "worker-1", "killed")
    assert world.take() is None, "it may still run there"
    world.advance(31)
    second = world.taken()
    assert (second.message, second.attempt) == (b"poison", 2)
    world.queue.lost(world.now, second.fence, "worker-2", "killed")
    world.advance(100)
    assert world.take() is None
    assert [each.worker for each in stories(world)[0].endings] == ["worker-1", "worker-2"]


def test_an_item_that_was_lost_with_a_router_has_lost_no_worker(world: World) -> None:
    world.put(b"a")
    fences = []
    for attempt in range(1, 20):
        given = world.taken()
        assert given.attempt == attempt
        fences.append(given.fence)
        world.queue.lost(world.now, given.fence, "", "the router went away")
        world.advance(29)
        assert world.take() is None, "it may still run somewhere"
        world.advance(2)
    assert fences == sorted(set(fences))
    assert world.queue.counters["in doubt"] == 19


@pytest.mark.parametrize("worker", ["worker-1", ""])
def test_an_item_in_doubt_is_parked_where_that_is_asked_for(world: World, worker: str) -> None:
    world.set_policy(on_lost="park")
    world.put(b"a")
    world.queue.lost(world.now, world.taken().fence, worker, "killed")
    world.advance(100)
    assert world.take() is None and len(stories(world)) == 1


def test_an_item_that_was_not_begun_is_the_next_one_and_has_been_tried_by_nobody(world: World) -> None:
    world.put(b"a", b"b")
    first = world.taken()
    assert world.queue.not_begun(first.fence)
    again = world.taken()
    assert (again.message, again.attempt) == (b"a", 1) and again.fence > first.fence


def test_whatever_is_said_under_an_old_fence_changes_nothing(world: World) -> None:
    world.put(b"a")
    first = world.taken()
    world.queue.lost(world.now, first.fence, "w", "cut off")
    world.advance(31)
    second = world.taken()
    assert not world.queue.done(first.fence)
    assert not world.queue.failed(world.now, first.fence, "w", "too late")
    assert not world.queue.not_begun(first.fence)
    assert world.queue.counters["too late"] == 2
    ended: list[bool] = []
    assert world.queue.done(second.fence, lambda: ended.append(True))
    assert not ended  # not before it is durable
    world.run()
    assert ended and not world.queue.done(second.fence)


# --- figures ---------------------------------------------------------------------------------------


def numbers(world: World) -> tuple[int, int, int, int]:
    figures = world.queue.figures(world.now)
    return figures["ready"], figures["postponed"], figures["running"], figures["dead"]


def ages(world: World) -> dict[str, float]:
    world.queue.figures(world.now)
    world.run()
    oldest: dict[str, float] = world.queue.figures(world.now)["oldest"]
    return {state: round(seconds, 3) for state, seconds in oldest.items()}


def test_items_are_counted_by_state(world: World) -> None:
    world.set_policy(attempts=2, backoff=10.0)
    world.put(b"a", b"b", b"c")
    world.put(b"later", due=World.wall(world.now + 60))
    assert numbers(world) == (3, 1, 0, 0)
    first, second = world.taken(), world.taken()
    assert numbers(world) == (1, 1, 2, 0)
    world.queue.done(first.fence)
    world.queue.failed(world.now, second.fence, "w", "raised")
    world.run()
    assert numbers(world) == (1, 2, 0, 0)
    world.advance(11)
    assert numbers(world) == (2, 1, 0, 0)
    world.queue.rejected(world.now, world.taken().fence, "w", "no")
    assert world.queue.not_begun(world.taken().fence)
    world.run()
    assert numbers(world) == (1, 1, 0, 1)
    world.kill(is_in_order=True)
    assert numbers(world) == (1, 1, 0, 1)


def test_an_item_whose_end_is_not_durable_yet_is_not_counted_as_ready(world: World) -> None:
    world.put(b"a", b"b")
    world.queue.done(world.taken().fence)
    assert world.port.waiting and numbers(world) == (1, 0, 0, 0)
    world.run()
    assert numbers(world) == (1, 0, 0, 0)


def test_the_ages_of_the_oldest_items_are_known(world: World) -> None:
    assert ages(world) == {}
    world.put(b"a", b"b", b"c")
    world.advance(5)
    rejected = world.taken()
    world.queue.rejected(world.now, rejected.fence, "w", "no")
    world.taken()
    world.advance(2)
    assert ages(world) == {"ready": 7.0, "running": 2.0, "dead": 2.0}
    world.kill()
    # Nothing was read yet by this life, and the store is asked.
    world.advance(1)
    assert ages(world) == {"ready": 8.0, "dead": 3.0}


def test_a_queue_that_was_declared_and_never_used_is_known_in_the_next_life(world: World) -> None:
    world.set_policy(rate=1.0)
    world.kill()
    assert world.queues.names() == ["billing"]
    world.put(b"a", b"b", b"c")
    assert world.take_all() == [b"a"]  # the rate holds


# --- lives of the router ---------------------------------------------------------------------------


def test_the_next_life_waits_for_workers_that_may_still_run_an_item(world: World) -> None:
    world.put(b"given", b"waiting")
    world.taken()
    world.kill()
    assert world.take_all() == []
    world.advance(Policy().lease)
    assert world.take_all() == [b"given", b"waiting"]


def test_what_is_read_from_the_store_is_announced(world: World) -> None:
    world.put(*(b"%d" % number for number in range(600)))
    world.kill(is_in_order=True)
    announced: list[str] = []
    world.queues.on_ready = lambda queue: announced.append(queue.name)
    assert world.queue.take(world.now) is None and not announced
    world.run()
    assert announced and world.taken().message == b"0"


@pytest.mark.parametrize("is_read", [False, True])
def test_a_new_item_does_not_wait_with_those_of_a_former_life(world: World, is_read: bool) -> None:
    world.put(b"before", b"not taken")
    world.taken()
    world.kill()
    if is_read:
        assert world.take_all() == []
    world.put(b"at once")
    world.put(b"postponed", due=World.wall(world.now + 5))
    world.put(b"also at once")
    assert world.take_all() == [b"at once", b"also at once"]
    world.advance(world.queue.policy.lease + 1)
    assert sorted(world.take_all()) == [b"before", b"not taken", b"postponed"]
    world.put(b"later")
    assert world.take_all() == [b"later"]


def test_items_that_cannot_have_been_given_do_not_wait(world: World) -> None:
    for start in range(0, 5000, 100):
        world.put(*(b"%d" % number for number in range(start, start + 100)))
    assert world.taken().message == b"0"
    world.kill()
    began_with = world.taken().message
    assert 500 <= int(began_with) < 2000
    rest = [began_with, *world.take_all()]
    world.advance(Policy().lease)
    rest += world.take_all()
    assert sorted(map(int, rest)) == list(range(5000))


def test_after_an_end_in_order_nothing_waits(world: World) -> None:
    world.put(b"a", b"b")
    world.queue.done(world.taken().fence)
    world.run()
    world.kill(is_in_order=True)
    assert world.take_all() == [b"b"]


def test_the_next_life_knows_policy_story_and_delays(world: World) -> None:
    world.set_policy(attempts=2, backoff=40.0)
    world.put(b"a")
    world.put(b"later", due=World.wall(world.now + 100))
    world.queue.failed(world.now, world.taken().fence, "w", "raised")
    world.run()
    world.kill()
    assert world.queue.policy == replace(Policy(), attempts=2, backoff=40.0)
    world.advance(41)
    assert world.taken().attempt == 2
    world.advance(60)
    assert world.taken().message == b"later"


def test_an_item_that_was_put_twice_is_there_once(world: World) -> None:
    first = world.put(b"a", id=b"invoice-1", digest=b"A")
    again = world.put(b"a", id=b"invoice-1", digest=b"A")
    other = world.put(b"b", id=b"invoice-1", digest=b"B")
    assert first[0].number and again[0].is_known and other[0].is_other
    assert world.take_all() == [b"a"]


def test_nothing_is_given_while_the_store_fails(world: World) -> None:
    world.put(b"a")
    world.port.waits_for = "disk full"
    assert world.take() is None
    world.port.waits_for = ""
    assert world.taken().message == b"a"


def test_whoever_was_given_nothing_while_the_store_failed_is_told_when_it_is_back(world: World) -> None:
    world.put(b"a")
    world.port.waits_for = "disk full"
    assert world.take() is None
    told: list[str] = []
    world.queues.on_ready = lambda queue: told.append(queue.name)
    world.port.waits_for = ""
    world.port.reopen(0)
    while world.port.waiting:
        world.port.answer()
    assert told


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"attempts": 0}, "attempts must be an integer of at least 1, not 0"),
        ({"on_lost": "ignore"}, "on_lost must be redeliver or park, not 'ignore'"),
        ({"backoff": float("nan")}, "backoff must be a number of at least 0, not nan"),
        ({"lease": 0.5}, "lease must be a number of at least 1, not 0.5"),
        ({"concurrency": True}, "concurrency must be an integer of at least 0, not True"),
        ({"max_items": 1 << 20_000}, "max_items must be an integer of at most 9007199254740992"),
    ],
)
def test_a_wrong_policy_is_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Policy(**settings)  # type: ignore[arg-type]


def test_a_back_off_that_no_number_can_have_is_the_longest() -> None:
    assert Policy(backoff=9e8, backoff_factor=9e8, backoff_most=600).delay(1000) == 600.0


# --- queues that are there for nothing ---------------------------------------------------------------


def test_a_queue_of_which_anything_was_ever_said_is_not_blank(world: World) -> None:
    queues = world.queues
    assert queues.is_blank("new")
    queues.forget("new")
    assert "new" not in queues.names()
    world.put(b"a")
    assert not queues.is_blank("billing")
    given = world.taken()
    world.queue.done(given.fence)
    world.run()
    assert not queues.is_blank("billing")
    queues.declare(world.now, "set", Policy(attempts=7), lambda: None)
    queues.queue("paused").is_paused = True
    assert not queues.is_blank("set") and not queues.is_blank("paused")


def test_a_queue_whose_items_were_there_before_the_start_is_not_blank(world: World) -> None:
    world.put(b"a")
    world.kill()
    assert not world.queues.is_blank("billing") and world.queues.has_items("billing")
