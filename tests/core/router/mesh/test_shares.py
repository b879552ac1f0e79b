"""The plan by which processes are spread over the routers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.router.mesh.shares import moves

MANY = 1 << 20


def after_all_moves(counts: dict[int, int]) -> dict[int, int]:
    """The numbers of processes when all routers have planned with the same counts, and all who were asked have gone."""
    changes: Counter[int] = Counter()
    for id in counts:
        destinations = moves(counts, id, MANY)
        changes[id] -= len(destinations)
        changes.update(destinations)
    return {id: count + changes[id] for id, count in counts.items()}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((3, 3, 0), (2, 2, 2)),
        ((150, 150, 0), (100, 100, 100)),
        ((2, 0), (1, 1)),
        ((5, 1, 1, 1), (2, 2, 2, 2)),
        ((3, 3, 1, 1), (2, 2, 2, 2)),
        ((0, 900, 0), (300, 300, 300)),
    ],
    ids=str,
)
def test_each_gets_its_share_of_what_others_have_more(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    assert tuple(after_all_moves(dict(enumerate(before))).values()) == after


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (1, 1, 0), (2, 1, 1), (7,), (109, 100, 91), (110, 95, 95)], ids=str)
def test_what_is_nearly_equal_stays(counts: tuple[int, ...]) -> None:
    assert after_all_moves(dict(enumerate(counts))) == dict(enumerate(counts))


def test_no_more_are_to_move_than_can_be_asked() -> None:
    assert moves({1: 300, 2: 0, 3: 0}, 1, 150) == [2] * 100 + [3] * 50


@given(counts=st.lists(st.integers(0, 300) | st.just(1 << 53), min_size=1, max_size=40))
def test_nobody_gets_or_keeps_more_than_its_share_and_then_all_is_quiet(counts: list[int]) -> None:
    before = dict(enumerate(counts))
    if max(counts) > 300:
        assert all(not moves(before, id, 10) for id in before if before[id] <= 300), "a made-up number moves nobody"
        return
    after = after_all_moves(before)
    share = -(-sum(counts) // len(counts))
    assert sum(after.values()) == sum(counts)
    assert all(count <= share or count == before[id] for id, count in after.items())
    assert after_all_moves(after) == after
