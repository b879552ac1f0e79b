from __future__ import annotations

import gc
import math
import random
import tracemalloc
import weakref
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.core.common.timing_wheel import DeadlineWheel

RESOLUTION = 0.01


def fill(wheel: DeadlineWheel[str], *items: tuple[float, str]) -> None:
    for deadline, item in items:
        wheel.slot(deadline)[item] = item


def test_an_empty_wheel_has_nothing_to_do():
    wheel: DeadlineWheel[str] = DeadlineWheel()
    assert wheel.next_deadline() is None
    assert wheel.expire(1e6) == []
    assert len(wheel) == 0


def test_items_expire_in_order_of_their_slots_and_once():
    wheel: DeadlineWheel[str] = DeadlineWheel()
    fill(wheel, (5.0, "late"), (1.0, "early"), (3.0, "middle"), (1.001, "early too"))
    assert len(wheel) == 4
    assert wheel.expire(4.0) == ["early", "early too", "middle"]
    assert wheel.expire(4.0) == []
    assert len(wheel) == 1
    assert wheel.expire(6.0) == ["late"]
    assert wheel.next_deadline() is None


def test_nothing_expires_before_its_slot_has_passed():
    wheel: DeadlineWheel[str] = DeadlineWheel(1.0)
    fill(wheel, (7.25, "item"))
    assert wheel.next_deadline() == 8.0
    assert wheel.expire(7.999) == []
    assert wheel.expire(8.0) == ["item"]


def test_a_removed_item_does_not_expire_and_sets_no_deadline():
    wheel: DeadlineWheel[str] = DeadlineWheel(1.0)
    fill(wheel, (1.0, "gone"), (5.0, "stays"))
    del wheel.slot(1.0)["gone"]
    assert wheel.next_deadline() == 6.0
    assert wheel.expire(100.0) == ["stays"]


def test_a_slot_that_was_forgotten_can_be_used_again():
    wheel: DeadlineWheel[str] = DeadlineWheel(1.0)
    fill(wheel, (1.0, "first"))
    del wheel.slot(1.0)["first"]
    assert wheel.next_deadline() is None
    fill(wheel, (1.0, "second"))
    assert wheel.next_deadline() == 2.0
    assert wheel.expire(2.0) == ["second"]
    assert wheel.next_deadline() is None


def test_a_deadline_in_the_past_is_due_at_once():
    wheel: DeadlineWheel[str] = DeadlineWheel(1.0)
    assert wheel.expire(50.0) == []
    fill(wheel, (3.0, "overdue"))
    assert wheel.next_deadline() == 4.0
    assert wheel.expire(50.0) == ["overdue"]


@pytest.mark.parametrize("resolution", [0, -1, math.inf, math.nan])
def test_a_resolution_must_be_a_positive_number(resolution: float):
    with pytest.raises(ValueError, match="resolution"):
        DeadlineWheel(resolution)


@pytest.mark.parametrize("deadline", [math.inf, math.nan])
def test_a_deadline_must_be_finite(deadline: float):
    wheel: DeadlineWheel[str] = DeadlineWheel()
    with pytest.raises((OverflowError, ValueError)):
        wheel.slot(deadline)
    assert wheel.next_deadline() is None


def test_an_expired_item_that_points_to_its_slot_is_freed_at_once():
    class Item:
        slot: dict[int, Item]

    wheel: DeadlineWheel[Item] = DeadlineWheel()
    item = Item()
    item.slot = wheel.slot(1.0)
    item.slot[1] = item
    gone = weakref.ref(item)
    gc.disable()
    try:
        assert wheel.expire(2.0) == [item]
        del item
        assert gone() is None
    finally:
        gc.enable()


@given(st.floats(0, 1e9), st.sampled_from([RESOLUTION, 1 / 3, 0.007, 1.0, 60.0]))
def test_who_sleeps_until_next_deadline_finds_something_due(deadline: float, resolution: float):
    wheel: DeadlineWheel[str] = DeadlineWheel(resolution)
    fill(wheel, (deadline, "item"))
    wake = wheel.next_deadline()
    assert wake is not None
    assert deadline < wake <= deadline + resolution + 4 * math.ulp(wake)
    assert wheel.expire(deadline) == []
    assert wheel.expire(wake) == ["item"]


@pytest.mark.parametrize("resolution", [RESOLUTION, 1 / 3])
def test_rounding_does_not_wake_the_sleeper_too_early(resolution: float):
    # 29 * 0.01 * 100 is 28.999999999999996, which lies in the slot that ends there.
    for number in range(2000):
        wheel: DeadlineWheel[str] = DeadlineWheel(resolution)
        fill(wheel, ((number + 0.5) * resolution, "item"))
        wake = wheel.next_deadline()
        assert wake is not None
        assert wheel.expire(wake) == ["item"]


# What a program may do, with times on a grid that puts many of them on the edges of slots.
TIMES = st.integers(0, 4000).map(lambda ms: ms / 1000) | st.floats(0, 4)
STEPS = st.lists(
    st.tuples(st.just("add"), TIMES)
    | st.tuples(st.just("remove"), st.integers(0, 200))
    | st.tuples(st.just("advance"), TIMES)
    | st.tuples(st.just("next"), st.none()),
    max_size=400,
)


@settings(max_examples=100)
@given(STEPS)
def test_the_wheel_agrees_with_a_plain_list(steps: list[tuple[str, float]]):
    wheel: DeadlineWheel[int] = DeadlineWheel(RESOLUTION)
    model: dict[int, tuple[float, dict[int, int]]] = {}
    now, key = 0.0, 0
    for verb, argument in steps:
        if verb == "add":
            slot = wheel.slot(argument)
            slot[key] = key
            model[key] = (argument, slot)
            key += 1
        elif verb == "remove" and model:
            victim = sorted(model)[int(argument) % len(model)]
            _, slot = model.pop(victim)
            del slot[victim]
        elif verb == "advance":
            now = max(now, argument)
            due = wheel.expire(now)
            deadlines = [model.pop(item)[0] for item in due]
            assert all(deadline <= now for deadline in deadlines)
            assert all(a <= b + RESOLUTION for a, b in pairwise(deadlines))
            assert all(deadline > now - RESOLUTION - 1e-9 for deadline, _ in model.values())
        elif verb == "next":
            wake = wheel.next_deadline()
            if model:
                soonest = min(deadline for deadline, _ in model.values())
                assert wake is not None
                assert soonest < wake <= soonest + RESOLUTION + 1e-9
            else:
                assert wake is None
        assert len(wheel) == len(model)
    assert sorted(wheel.expire(5.0)) == sorted(model)


def test_a_slot_used_again_is_not_taken_for_the_one_that_was_forgotten():
    wheel: DeadlineWheel[str] = DeadlineWheel(1.0)
    fill(wheel, (5.0, "first"))
    del wheel.slot(5.0)["first"]
    assert wheel.next_deadline() is None
    fill(wheel, (5.0, "second"))
    for number in range(10, 500):
        fill(wheel, (float(number), f"later {number}"))
    assert wheel.expire(6.0) == ["second"]


def test_order_holds_however_many_slots_come_and_go():
    # Given thousands of slots in no order, of which two thirds are emptied again
    wheel: DeadlineWheel[float] = DeadlineWheel(1.0)
    deadlines = random.Random(7).sample(range(100_000), 6000)
    for number, deadline in enumerate(deadlines):
        slot = wheel.slot(deadline)
        slot[deadline] = deadline
        if number % 3:
            del slot[deadline]
    kept = sorted(deadlines[::3])
    # Then what is left expires in order, each at the time that was announced for it
    for deadline in kept[:1000]:
        assert wheel.next_deadline() == deadline + 1
        assert wheel.expire(deadline + 1) == [deadline]
    assert wheel.expire(200_000) == kept[1000:]


def bytes_held(wheel: DeadlineWheel[int], churn: int, survivors_every: int) -> int:
    """Memory held after ``churn`` items came and went at 100,000 a second with 60 s to live."""
    tracemalloc.start()
    try:
        for number in range(churn):
            slot = wheel.slot(number / 100_000 + 60)
            slot[number] = number
            if number % survivors_every:
                del slot[number]
            elif number >= 100_000:
                # Answers that took a second.
                late = number - 100_000
                del wheel.slot(late / 100_000 + 60)[late]
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_items_that_left_give_their_memory_back_long_before_their_deadline():
    wheel: DeadlineWheel[int] = DeadlineWheel()
    held = bytes_held(wheel, churn=400_000, survivors_every=100)
    assert len(wheel) == 1000
    assert held < 400_000


def test_slots_that_were_filled_at_once_and_emptied_slowly_shrink_too():
    # Given slots of a thousand items each, all alive when the slot was filled
    wheel: DeadlineWheel[int] = DeadlineWheel()
    slots = []
    for number in range(300):
        slots.append(wheel.slot(number / 100 + 60.005))
        slots[-1].update({key: key for key in range(number * 1000, number * 1000 + 1000)})
    full = sum(slot.__sizeof__() for slot in slots)
    # When all but one of each leave, and time goes on with other slots
    for number, slot in enumerate(slots):
        for key in range(number * 1000 + 1, number * 1000 + 1000):
            del slot[key]
    for number in range(300, 900):
        wheel.slot(number / 100 + 60.005)[-number] = number
    # Then those slots are the same dicts, small now, and their items are still there
    assert sum(slot.__sizeof__() for slot in slots) < full / 20
    assert wheel.expire(63.0) == [number * 1000 for number in range(300)]


def test_the_same_slot_used_and_forgotten_again_and_again_leaves_nothing():
    # One caller with one call at a time: the shell asks for the next deadline between any two.
    wheel: DeadlineWheel[int] = DeadlineWheel()
    tracemalloc.start()
    try:
        for number in range(50_000):
            slot = wheel.slot(60.0 + number / 5_000_000)
            slot[number] = number
            wheel.next_deadline()
            del slot[number]
            wheel.next_deadline()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert wheel.next_deadline() is None
    assert held < 50_000


def test_deadlines_spread_over_a_day_leave_nothing():
    wheel: DeadlineWheel[int] = DeadlineWheel()
    tracemalloc.start()
    try:
        for number in range(50_000):
            slot = wheel.slot(number * 7919 % 86_400)
            slot[number] = number
            del slot[number]
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 100_000
