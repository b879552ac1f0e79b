"""Each granter has as many grants waiting as there is room left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.router.grant_shares import GrantShares

ROOM = 1000


def fill(granters: int) -> tuple[GrantShares, dict[bytes, int]]:
    """Let so many grant, in turn, until all have their share."""
    shares, taken, waiting = GrantShares(), dict.fromkeys((b"%d" % n for n in range(granters)), 0), 0
    left = list(taken)
    while left:
        for granter in list(left):
            if shares.take(granter, waiting, 0, ROOM - waiting):
                left.remove(granter)
            else:
                taken[granter] += 1
                waiting += 1
    return shares, taken


def test_one_has_half_of_the_room_and_several_equal_parts() -> None:
    assert fill(1)[1] == {b"0": 500}
    assert all(333 <= count <= 334 for count in fill(2)[1].values())
    assert all(90 <= count <= 92 for count in fill(10)[1].values())


def test_one_that_has_none_waiting_is_never_refused_while_there_is_room() -> None:
    shares, taken = fill(10)
    assert shares.take(b"other", 2000, 0, ROOM - sum(taken.values())) == 0


def test_what_has_arrived_is_not_counted() -> None:
    shares, _ = fill(1)
    assert shares.take(b"0", 500, 0, 500) == 500
    assert shares.take(b"0", 500, 500, 500) == 0
    assert len(shares) == 1


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 3), st.integers(0, 20))))
def test_it_does_as_a_plain_model_does(steps: list[tuple[bytes, int, int]]) -> None:
    shares, position, arrived = GrantShares(), 0, 0
    model: list[tuple[int, bytes]] = []
    for granter, more, room in steps:
        arrived = min(position, arrived + more)
        model = [each for each in model if each[0] >= arrived]
        count = sum(each[1] == granter for each in model)
        taken = shares.take(granter, position, arrived, room)
        assert taken == (count if count >= room else 0)
        if count < room:
            model.append((position, granter))
            position += 1
        assert len(shares) == len(model)
