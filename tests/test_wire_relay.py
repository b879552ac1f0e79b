"""RELAY: for whom a batch is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.errors import ProtocolError
from rpcmq.wire import Kind, pack, split
from rpcmq.wire.relay import MAX_LEGS, Leg, pack_relay, parse_relay, ranges_of, selected

MESSAGES = 20
PLACES = st.lists(st.integers(0, MESSAGES - 1), min_size=1, max_size=60)


@given(PLACES)
def test_ranges_select_the_places_they_were_made_of(places: list[int]) -> None:
    assert list(selected(ranges_of(places, MESSAGES), range(MESSAGES))) == places


def test_all_messages_need_no_range() -> None:
    assert ranges_of(range(MESSAGES), MESSAGES) == ()
    assert ranges_of(range(MESSAGES - 1), MESSAGES) == ((0, MESSAGES - 1),)


@given(
    st.integers(1, (1 << 32) - 1),
    st.integers(0, 255),
    st.lists(
        st.builds(
            Leg,
            st.integers(0, (1 << 32) - 1),
            st.integers(0, (1 << 64) - 1),
            st.integers(0, (1 << 64) - 1),
            PLACES.map(lambda places: ranges_of(places, MESSAGES)),
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_it_is_read_as_it_was_written(source: int, hops: int, legs: list[Leg]) -> None:
    (message,) = split(pack_relay(source, hops, legs))
    assert parse_relay(message, MESSAGES) == (source, hops, tuple(legs))


@given(st.binary(max_size=200), st.integers(0, MESSAGES))
def test_whatever_it_contains_it_is_read_or_refused(payload: bytes, messages: int) -> None:
    try:
        relay = parse_relay(pack(Kind.RELAY, payload), messages)
    except ProtocolError:
        return
    assert 0 < len(relay.legs) <= MAX_LEGS
    for leg in relay.legs:
        assert len(selected(leg.ranges, range(messages))) <= 4096
        assert selected(leg.ranges, range(messages)) or not leg.sequence


def test_a_closed_connection_needs_no_messages_and_any_other_does() -> None:
    assert parse_relay(pack_relay(1, 0, [Leg(2, 3, 0)]), 0).legs == (Leg(2, 3, 0),)
    with pytest.raises(ProtocolError, match="no messages"):
        parse_relay(pack_relay(1, 0, [Leg(2, 3, 1)]), 0)
