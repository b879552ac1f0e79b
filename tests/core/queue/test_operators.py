"""The verbs of operators, without sockets and disks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rpcmq.core.queue.dead_items import Progress
from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.pages import PAGE
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.queues import NewItem
from rpcmq.core.queue.refusals import Draining, Refused
from rpcmq.core.queue.views import ItemView
from rpcmq.store.contract import Maker, Position, Verdict
from tests.core.queue.virtual_store import World


def ask(world: World, verb: str, *arguments: Any, **named: Any) -> Any:
    """The answer to a verb."""
    answers: list[Any] = []
    getattr(Operators(world.queues), verb)(*arguments, **named,
        then=lambda *answer: answers.append(answer[0] if answer else None))  # fmt: skip
    world.run()
    (answer,) = answers
    return answer


def peek(world: World, state: str, most: int = 10) -> list[tuple[int, int, bytes]]:
    views: list[ItemView] = ask(world, "peek", "billing", state, most)
    assert all(view.state == state for view in views)
    return [(view.priority, view.number, view.message) for view in views]


def bury(world: World, *messages: bytes) -> None:
    """Put items, and have them rejected."""
    world.put(*messages)
    for _ in messages:
        world.queue.rejected(world.now, world.taken().fence, "worker-1", "no such invoice")
    world.run()


def other(world: World) -> list[bytes]:
    """The messages that can be taken from the queue "other"."""
    world.advance(0.1)
    found = []
    while (given := world.queues.queue("other").take(world.now)) is not None or world.port.waiting:
        world.run()
        if given is not None:
            found.append(given.message)
    return found


def test_items_are_shown_by_state(world: World) -> None:
    bury(world, b"dead")
    world.put(b"a", b"b", b"c", series=b"s")
    world.put(b"urgent", priority=9, expires=World.wall(world.now + 60))
    world.put(b"later", b"sooner", due=World.wall(world.now + 60))
    world.run()
    assert {world.taken().message, world.taken().message} == {b"a", b"urgent"}
    assert world.take() is None  # b and c wait for a
    world.put(b"d")
    assert peek(world, "running") == [(0, 2, b"a"), (9, 1, b"urgent")]
    assert peek(world, "ready") == [(0, 3, b"b"), (0, 4, b"c"), (0, 7, b"d")]
    assert peek(world, "ready", 2) == [(0, 3, b"b"), (0, 4, b"c")]
    assert peek(world, "postponed") == [(0, 5, b"later"), (0, 6, b"sooner")]
    assert peek(world, "dead") == [(0, 1, b"dead")]
    with pytest.raises(ValueError, match="state must be one of ready, postponed, running, dead, not 'done'"):
        ask(world, "peek", "billing", "done", 1)


def test_an_item_that_is_due_is_ready_and_not_postponed(world: World) -> None:
    world.put(b"later", due=World.wall(world.now + 60))
    world.advance(61)
    assert peek(world, "ready") == [(0, 1, b"later")] and peek(world, "postponed") == []
    assert ask(world, "show", "billing", 0, 1).state == "ready"


def test_one_item_is_shown_with_its_story(world: World) -> None:
    bury(world, b"dead")
    world.put(b"a", b"b", id=b"", series=b"s")
    world.taken()
    dead, running, ready, gone = (ask(world, "show", "billing", 0, number) for number in (1, 2, 3, 9))
    assert (dead.state, running.state, ready.state, gone) == ("dead", "running", "ready", None)
    (ending,) = dead.story.endings
    assert (ending.worker, ending.outcome, ending.text) == ("worker-1", "rejected", "no such invoice")
    assert (ready.message, ready.series, ready.maker, ready.at) == (b"b", b"s", Maker(7, 3), World.wall(world.now))
    assert dead.since == World.wall(world.now)


def test_dead_items_are_tried_again_as_often_as_new_ones(world: World) -> None:
    world.queues.declare(world.now, "billing", Policy(attempts=1), lambda: None)
    world.put(b"a", b"b", b"c")
    for _ in range(3):
        world.queue.failed(world.now, world.taken().fence, "w", "raised")
    world.run()
    assert world.queue.figures(world.now)["dead"] == 3
    assert ask(world, "retry", world.now, "billing", keys=[(0, 2), (0, 9)]) == 1
    world.advance(0.1)
    again = world.taken()
    assert (again.message, again.attempt, again.item.maker) == (b"b", 1, Maker(7, 2))
    world.queue.failed(world.now, again.fence, "w", "raised once more")
    world.run()
    assert [len(view.story.endings) for view in ask(world, "peek", "billing", "dead", 9)] == [1, 1, 2]
    assert ask(world, "retry", world.now, "billing") == 3
    assert world.queue.figures(world.now)["dead"] == 0
    world.advance(0.1)
    assert sorted(world.take_all()) == [b"a", b"b", b"c"]


def test_many_dead_items_are_tried_again_each_once(world: World) -> None:
    world.queues.declare(world.now, "billing", Policy(attempts=1), lambda: None)
    messages = [b"%d" % number for number in range(600)]
    bury(world, *messages)
    assert ask(world, "retry", world.now, "billing") == 600
    world.advance(0.1)
    assert world.take_all() == messages


def test_dead_items_are_dropped(world: World) -> None:
    bury(world, b"a", b"b", b"c")
    assert ask(world, "drop", world.now, "billing", keys=[(0, 2)]) == 1
    assert [message for _, _, message in peek(world, "dead")] == [b"a", b"c"]
    world.put(b"alive")
    assert ask(world, "drop", world.now, "billing", keys=[(0, 4)]) == 0
    assert ask(world, "drop", world.now, "billing") == 2
    assert peek(world, "dead") == [] and world.queue.figures(world.now)["dead"] == 0
    assert world.take_all() == [b"alive"]


def test_dead_items_are_shown_part_by_part_each_once(world: World) -> None:
    bury(world, *(b"%d" % number for number in range(7)))
    shown: list[bytes] = []
    after = Position()
    while views := ask(world, "peek", "billing", "dead", 3, after=after):
        shown += [view.message for view in views]
        after = Position(views[-1].since, views[-1].place, views[-1].number)
    assert shown == [b"%d" % number for number in range(7)]


@pytest.mark.parametrize("verb", [("retry", "billing"), ("drop", "billing"), ("move_dead", "billing", "other")])
def test_each_page_of_dead_items_has_a_turn_and_others_have_theirs_between(world: World, verb: tuple[str, ...]) -> None:
    bury(world, *(b"%d" % number for number in range(2 * PAGE + 1)))
    turns: list[tuple[int, Callable[[Callable[[], object]], object]]] = []
    ends: list[None] = []
    counts: list[int] = []
    operators = Operators(world.queues, lambda work, begin: turns.append((work, begin)))
    getattr(operators, verb[0])(world.now, *verb[1:], counts.append)
    for page in range(1, 5):
        ((work, begin),) = turns
        assert work == PAGE and not counts, "nothing goes on until it is its turn"
        turns.clear()
        begin(lambda: ends.append(None))
        world.run()
        assert len(ends) == page, "a turn ends with its page"
    assert counts == [2 * PAGE + 1] and not turns


def test_ready_items_are_moved_turn_by_turn(world: World) -> None:
    world.put(*(b"%d" % number for number in range(PAGE)))
    works: list[int] = []
    under_way: list[None] = []
    counts: list[int] = []

    def in_turn(work: int, begin: Callable[[Callable[[], object]], object]) -> None:
        assert not under_way, "a step begins once the one before has ended"
        works.append(work)
        under_way.append(None)
        begin(under_way.pop)

    Operators(world.queues, in_turn).move_ready(world.now, "billing", "other", counts.append)
    world.run()
    assert counts == [PAGE] and not under_way and set(works) == {PAGE} and len(works) > 2


def test_a_change_of_dead_items_stops_after_a_part_and_goes_on_there(world: World) -> None:
    bury(world, *(b"%d" % number for number in range(3 * PAGE)))
    progress = Progress(most=PAGE + 1)
    assert ask(world, "drop", world.now, "billing", progress=progress) == 2 * PAGE
    assert progress.after is not None
    world.advance(1)
    bury(world, b"died later")
    assert ask(world, "drop", world.now, "billing", progress=progress) == PAGE and progress.after is None
    assert [message for _, _, message in peek(world, "dead")] == [b"died later"]


def test_those_of_many_named_items_that_stay_as_they_are_are_told(world: World) -> None:
    bury(world, *(b"%d" % number for number in range(PAGE + 10)))
    progress = Progress()
    keys = [(0, number) for number in (*range(1, PAGE + 11), 999_999)] + [(5, 1)]
    assert ask(world, "retry", world.now, "billing", keys=keys, progress=progress) == PAGE + 10
    assert progress.missed == [(0, 999_999), (5, 1)]


def test_two_operators_drop_the_same_items(world: World) -> None:
    bury(world, b"a", b"b")
    counts: list[int] = []
    for _ in range(2):
        Operators(world.queues).drop(world.now, "billing", counts.append)
    world.run()
    assert counts == [2, 0] and world.queue.figures(world.now)["dead"] == 0


def test_dead_items_are_moved(world: World) -> None:
    bury(world, b"a", b"b")
    assert ask(world, "move_dead", world.now, "billing", "other") == 2
    assert other(world) == [b"a", b"b"] and peek(world, "dead") == []
    with pytest.raises(ValueError, match="items of queue 'billing' cannot be moved to itself"):
        ask(world, "move_dead", world.now, "billing", "billing")


def test_ready_items_are_moved_and_what_runs_stays(world: World) -> None:
    world.put(*(b"%d" % number for number in range(700)))
    world.put(b"urgent", priority=5)
    world.put(b"tried", b"later", due=World.wall(world.now + 50))
    urgent, first, second = world.taken(), world.taken(), world.taken()
    world.queue.not_begun(second.fence)
    world.advance(51)
    assert ask(world, "move_ready", world.now, "billing", "other") == 701
    assert world.take() is None and world.queue.figures(world.now)["ready"] == 0
    assert world.queue.done(urgent.fence) and world.queue.done(first.fence)
    moved = other(world)
    assert sorted(moved) == sorted([b"%d" % number for number in range(1, 700)] + [b"tried", b"later"])
    world.kill()
    world.advance(60)
    assert world.take_all() == [] and sorted(other(world)) == sorted(moved)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_items_that_are_due_are_moved_also_those_that_were_not_read_yet(world: World, is_restarted: bool) -> None:
    world.put(*(b"%d" % number for number in range(1000)), due=World.wall(world.now + 5))
    world.put(b"urgent", priority=3, due=World.wall(world.now + 5))
    world.put(b"later", due=World.wall(world.now + 500))
    if is_restarted:
        world.kill(is_in_order=True)
    world.advance(6)
    running = [world.taken(), world.taken()]
    assert running[0].message == b"urgent" and len(list(world.queue.in_memory)) < 500
    assert ask(world, "move_ready", world.now, "billing", "other") == 999
    assert world.take() is None
    figures = world.queue.figures(world.now)
    assert (figures["ready"], figures["postponed"], figures["running"]) == (0, 1, 2)
    assert sorted([*other(world), running[1].message]) == sorted(b"%d" % number for number in range(1000))
    for each in running:
        assert world.queue.done(each.fence)
    world.advance(500)
    assert world.take_all() == [b"later"]


def test_an_item_that_a_worker_may_run_since_a_former_life_is_not_moved(world: World) -> None:
    world.put(b"delayed", due=World.wall(world.now + 5))
    world.advance(6)
    assert world.taken().message == b"delayed"
    world.kill()
    assert ask(world, "move_ready", world.now, "billing", "other") == 0
    world.advance(31)
    world.put(b"a")
    assert world.taken().message == b"delayed" and world.taken().message == b"a"
    world.kill()
    assert ask(world, "move_ready", world.now, "billing", "other") == 0
    world.advance(31)
    assert ask(world, "move_ready", world.now, "billing", "other") == 2


def test_an_item_whose_turn_comes_while_it_is_moved_is_not_given(world: World) -> None:
    world.put(b"later", due=World.wall(world.now + 5))
    world.advance(6)
    Operators(world.queues).move_ready(world.now, "billing", "other", lambda count: None)
    assert world.queue.take(world.now) is None
    world.run()
    assert other(world) == [b"later"]
    figures = world.queue.figures(world.now)
    assert (figures["ready"], figures["postponed"], figures["running"]) == (0, 0, 0)


def test_a_queue_is_paused_also_in_the_next_life(world: World) -> None:
    world.put(b"a")
    ask(world, "pause", "billing")
    assert world.take() is None and world.queue.figures(world.now)["is_paused"]
    world.kill(is_in_order=True)
    assert world.take() is None
    ask(world, "resume", "billing")
    assert world.taken().message == b"a"
    world.kill()
    assert not world.queue.is_paused


def put_or_not(world: World, id: bytes) -> list[Verdict] | Refused:
    answers: list[Any] = []
    world.queues.put(world.now, "billing", [NewItem(b"m", b"M", id)], answers.append, answers.append)
    world.run()
    (answer,) = answers
    return answer  # type: ignore[no-any-return]


def test_a_queue_that_drains_gives_what_is_there_and_takes_nothing_new(world: World) -> None:
    world.put(b"a", id=b"1", digest=b"M")
    ask(world, "drain", "billing")
    refusal = put_or_not(world, b"2")
    assert isinstance(refusal, Draining)
    assert str(refusal) == "queue 'billing' takes no new items: it is draining; resume it to put again"
    with pytest.raises(Draining):
        world.put(b"b", id=b"2")
    # Whoever asks again for want of an answer is told that it is there.
    assert put_or_not(world, b"1") == [Verdict(is_known=True)]
    world.kill(is_in_order=True)
    assert isinstance(put_or_not(world, b"2"), Draining)
    assert world.take_all() == [b"a"]
    ask(world, "resume", "billing")
    assert put_or_not(world, b"2") == [Verdict(2)]


def test_fences_grow_from_queue_to_queue(world: World) -> None:
    world.put(b"a", b"b")
    world.queue.failed(world.now, world.taken().fence, "w", "raised", 100.0)
    first = world.taken().fence
    world.queue.not_begun(first)
    Operators(world.queues).move_ready(world.now, "billing", "other", lambda count: None)
    world.run()
    again = world.queues.queue("other").take(world.now)
    world.run()
    again = again or world.queues.queue("other").take(world.now)
    assert again is not None and again.fence > first
