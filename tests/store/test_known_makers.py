"""Which counts of which producers were put."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpcmq.store.contract import Maker
from rpcmq.store.known_makers import KnownMakers

MAKERS = st.builds(Maker, st.integers(1, 3), st.integers(1, 40))


@given(st.lists(MAKERS, max_size=120))
def test_exactly_what_was_put_is_known_also_by_the_next_life(put: list[Maker]) -> None:
    known = KnownMakers()
    for at, maker in enumerate(put):
        known.add(maker, at)
    for each in (known, KnownMakers(known.snapshot())):
        for producer in range(1, 4):
            for counter in range(1, 41):
                assert (Maker(producer, counter) in each) == (Maker(producer, counter) in put)


def test_what_comes_in_order_is_one_interval() -> None:
    known = KnownMakers()
    for count in range(1, 10_001):
        known.add(Maker(1, count), 1)
    assert len(known.snapshot()) < 50


def test_a_producer_of_which_nothing_was_heard_is_forgotten() -> None:
    known = KnownMakers()
    known.add(Maker(1, 1), 1000)
    known.add(Maker(2, 1), 2000)
    known.add(Maker(1, 2), 9000)
    known.forget_before(5000)
    assert Maker(1, 1) in known and Maker(2, 1) not in known and len(known) == 1


def test_what_a_producer_can_make_grow_is_bounded() -> None:
    known = KnownMakers()
    for count in range(2, 10_000, 2):
        known.add(Maker(1, count), 1)
    for producer in range(2, 100_002):
        known.add(Maker(producer, 1), producer)
    assert len(known) == 100_000
    assert Maker(1, 8_000) not in known and Maker(100_001, 1) in known
    assert len(known.snapshot()) < 4_000_000
