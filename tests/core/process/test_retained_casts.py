"""Casts that a sender keeps until a consumer has them: in their order, bounded, and none that need not be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.retained_casts import RetainedCasts
from rpcmq.errors import ProtocolError
from rpcmq.wire import Flag, Kind, pack, size_of


def cast(sequence: int, payload: bytes = b"p", kind: Kind = Kind.CAST, flags: int = 0) -> bytes:
    return pack(kind, payload, key=bytes(12) + sequence.to_bytes(8), flags=flags)


def sequences(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8) for number in numbers)


def test_what_is_delivered_is_kept_no_longer():
    retained = RetainedCasts(10, 10_000)
    messages = [cast(number) for number in range(4)]
    for message in messages:
        retained.retain(message)
    retained.forget(sequences(0, 2, 9))
    assert list(retained) == [messages[1], messages[3]]
    assert retained.get(messages[1][16:36]) is messages[1] and retained.get(messages[0][16:36]) is None


def test_it_says_what_need_not_be_sent_again_as_far_as_it_knows():
    retained = RetainedCasts(2, 10_000)
    messages = [cast(number) for number in range(1, 5)]
    for message in messages[:2]:
        retained.retain(message)
    retained.forget(sequences(2))
    assert [retained.has_ended(message) for message in messages[:2]] == [False, True]
    assert not retained.has_ended(cast(2, flags=Flag.FANOUT)), "it was never kept"
    for message in messages[2:]:
        retained.retain(message)
    assert [retained.has_ended(message) for message in messages] == [False, True, False, False], "the first was let go"
    retained.retain(cast(5))
    assert [retained.has_ended(message) for message in messages] == [False] * 4, (
        "it knows nothing of those before one let go"
    )


@pytest.mark.parametrize(("kind", "flags"), [(Kind.CAST, Flag.FANOUT), (Kind.PUBLISH, 0), (Kind.REQUEST, 0)])
def test_only_casts_to_one_consumer_are_kept(kind: Kind, flags: int):
    retained = RetainedCasts(10, 10_000)
    retained.retain(cast(1, kind=kind, flags=flags))
    assert len(retained) == retained.size_bytes == 0


def test_beyond_the_bounds_the_oldest_are_let_go_and_counted():
    by_number = RetainedCasts(2, 10_000)
    by_bytes = RetainedCasts(100, 2 * size_of(cast(0, bytes(1000))))
    for number in range(5):
        by_number.retain(cast(number))
        by_bytes.retain(cast(number, bytes(1000)))
    for retained in (by_number, by_bytes):
        assert [message[28:36] for message in retained] == [sequences(3), sequences(4)]
        assert retained.discarded == 3


def test_one_that_is_larger_than_all_may_be_is_not_kept():
    retained = RetainedCasts(10, 100)
    retained.retain(cast(1, bytes(101)))
    assert (len(retained), retained.size_bytes, retained.discarded) == (0, 0, 1)


def test_half_a_sequence_is_refused():
    with pytest.raises(ProtocolError, match="12 bytes"):
        RetainedCasts(10, 100).forget(bytes(12))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.integers(0, 300))))
def test_its_size_is_that_of_what_it_keeps(steps: list[tuple[bool, int, int]]):
    retained = RetainedCasts(4, 1000)
    for is_kept, number, size in steps:
        if is_kept:
            retained.retain(cast(number, bytes(size)))
        else:
            retained.forget(sequences(number))
        assert retained.size_bytes == sum(map(size_of, retained)) <= 1000
        assert len(retained) <= 4
