"""INTEREST on the wire: what is written is read again, and any bytes are read or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.errors import ProtocolError
from rpcmq.wire import Address, Kind, pack
from rpcmq.wire.interest import (
    PART_SIZE,
    InterestBody,
    PlaceState,
    bits_of,
    identity_key,
    identity_number,
    is_address,
    numbers_of,
    part_key,
    place_key,
    place_of_key,
    topic_key,
)

names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30)
numbers = st.integers(0, (1 << 24) - 1)
states = st.builds(
    PlaceState,
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1),
    st.booleans(),
    st.lists(numbers, max_size=100).map(tuple),
    st.booleans(),
)
rows = st.lists(st.tuples(st.binary(max_size=50), st.binary(max_size=50)), max_size=20)


@given(st.builds(InterestBody, st.booleans(), st.booleans(), st.booleans(), *[st.integers(0, 9)] * 4, rows))
def test_a_message_is_read_as_it_was_written(body: InterestBody) -> None:
    assert InterestBody.of(body.message()) == body
    assert len(body.message()) == 40 + 29 + sum(map(InterestBody.size_of, body.rows))


@given(st.binary(max_size=200))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    try:
        body = InterestBody.of(pack(Kind.INTEREST, payload))
    except ProtocolError:
        return
    assert InterestBody.of(body.message()) == body


@given(states)
def test_a_state_is_read_as_it_was_written(state: PlaceState) -> None:
    raw = state.encode()
    if raw:
        assert PlaceState.read(raw) == state
    else:
        assert (state.consumers, state.registered, state.identities, state.in_parts) == (0, False, (), False)


@given(st.binary(max_size=400))
def test_any_state_is_read_or_refused(raw: bytes) -> None:
    try:
        state = PlaceState.read(raw)
    except ProtocolError:
        return
    assert PlaceState.read(state.encode()) == state or not state.encode()


@given(names, names, st.booleans(), st.none() | st.integers(0, (1 << 17) - 1))
def test_a_key_names_an_address_or_group_and_perhaps_a_part(topic: str, other: str, is_group: bool, part: int | None):
    address, group = (Address(topic), other) if is_group else (Address(topic, other, "x"), "")
    key = whole = place_key(address, group)
    if part is not None:
        key = part_key(whole, part)
    assert place_of_key(key) == (address, group, part)
    assert identity_number(key) is None and is_address(key) == (part is None)
    assert topic_key(key) == (place_key(address) if is_group and part is None else None)


@given(st.binary(max_size=60))
def test_any_key_is_read_or_refused(key: bytes) -> None:
    try:
        number = identity_number(key)
        found = place_of_key(key) if number is None else None
    except ProtocolError:
        return
    if number is not None:
        assert identity_key(number) == key
    elif found is not None:
        address, group, part = found
        whole = place_key(address, group)
        assert key == (whole if part is None else part_key(whole, part))
        assert is_address(key) == (part is None)


@given(st.integers(0, 1000), st.sets(st.integers(0, PART_SIZE - 1)))
def test_a_part_has_a_bit_for_each_of_its_numbers(part: int, members: set[int]) -> None:
    numbers = {part * PART_SIZE + each for each in members}
    bits = bits_of(numbers)
    assert set(numbers_of(part, bits)) == numbers if numbers else bits == b""


def test_what_is_told_of_a_part_without_16_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError, match="has 3 bytes"):
        list(numbers_of(0, b"abc"))
