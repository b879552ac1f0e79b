"""Items of many owners are served in turn, and whoever has the most loses."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.syslog.fair_queue import FairQueue


def taken(queue: FairQueue[str]) -> list[str]:
    found = []
    while len(queue):
        found.append(queue.take())
        queue.done()
    return found


def test_owners_have_their_turns_and_items_of_one_stay_in_order() -> None:
    queue: FairQueue[str] = FairQueue(1000)
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert queue.put(item[0], item, 10) == []
    assert taken(queue) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert (len(queue), queue.size) == (0, 0)
    with pytest.raises(LookupError):
        queue.take()


def test_the_owner_with_the_most_loses_its_latest() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for n in range(9):
        queue.put("loud", f"loud {n}", 10)
    assert queue.put("quiet", "quiet 0", 10) == []
    assert queue.put("quiet", "quiet 1", 10) == ["loud 8"]
    assert queue.put("loud", "loud 9", 10) == ["loud 9"]
    assert taken(queue)[:4] == ["loud 0", "quiet 0", "loud 1", "quiet 1"]


def test_an_item_that_never_fits_is_lost_itself_and_nothing_else() -> None:
    queue: FairQueue[str] = FairQueue(100)
    queue.put("a", "a", 90)
    assert queue.put("b", "large", 101) == ["large"]
    assert taken(queue) == ["a"]


def test_an_item_in_hand_takes_room_until_it_is_done() -> None:
    queue: FairQueue[str] = FairQueue(100)
    queue.put("a", "first", 60)
    assert queue.take() == "first" and len(queue) == 1
    assert queue.put("a", "second", 60) == ["second"]
    queue.done()
    assert (len(queue), queue.size) == (0, 0)
    assert queue.put("a", "third", 60) == []


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 5), st.integers(1, 700)))))
def test_it_does_as_a_plain_model_does(steps: list[tuple[int, int] | None]) -> None:
    """None: one is taken."""
    queue: FairQueue[tuple[int, int, int]] = FairQueue(1000)
    model: dict[int, deque[tuple[int, int, int]]] = {}

    def size(owner: int) -> int:
        return sum(each[1] for each in model.get(owner, ()))

    for number, step in enumerate(steps):
        if step is None:
            if not model:
                continue
            item = queue.take()
            queue.done()
            assert item == model[next(iter(model))].popleft(), "it was not the turn of this one"
            waiting = model.pop(item[0])
            if waiting:
                model[item[0]] = waiting
        else:
            owner, most = step
            item = (owner, most, number)
            lost = queue.put(owner, item, most)
            model.setdefault(owner, deque()).append(item)
            for each in lost:
                assert 2 * size(each[0]) > max(map(size, model)), "another has much more"
                assert model[each[0]].pop() == each, "it was not the latest"
                if not model[each[0]]:
                    del model[each[0]]
        assert queue.size == sum(map(size, model)) <= 1000
        assert len(queue) == sum(map(len, model.values()))
