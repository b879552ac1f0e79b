from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.payload.pickle_tuples import largest_tuple

NO_LIMIT = 1 << 60
TUPLES = st.recursive(
    st.integers() | st.text(max_size=300) | st.binary(max_size=300) | st.none() | st.floats() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=5).map(tuple)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(lambda items: (items, tuple(items), tuple(items)))
        | st.dictionaries(st.integers(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=20,
)


def depth(value: Any) -> int:
    return 1 + max(map(depth, value), default=0) if type(value) is tuple else 1


def items(value: Any) -> int:
    return 1 + sum(map(items, value)) if type(value) is tuple else 1


def largest(value: Any, measure: Any) -> int:
    """The largest of all tuples in ``value``, measured on the value itself."""
    own = measure(value) if type(value) is tuple and value else 0
    inner = value if isinstance(value, tuple | list) else value.values() if isinstance(value, dict) else ()
    return max([own, *(largest(item, measure) for item in inner)])


@given(TUPLES)
def test_measures_what_is_there(value: Any) -> None:
    data = pickle.dumps(value, 5)
    assert largest_tuple(data, max, NO_LIMIT) == largest(value, depth)
    assert largest_tuple(data, sum, NO_LIMIT) == largest(value, items)


def test_counts_shared_parts_as_often_as_they_are_used() -> None:
    value: Any = ("x",)
    for _ in range(50):
        value = (value, value)
    assert largest_tuple(pickle.dumps(value, 5), sum, NO_LIMIT) == 3 * 2**50 - 1


def test_stops_at_the_limit() -> None:
    data = b"\x80\x05)" + b"\x85" * 1000 + b"."
    assert largest_tuple(data, max, 10) == 11


def test_recursive_structure() -> None:
    ring: list[Any] = []
    ring.append((ring, 1))
    assert largest_tuple(pickle.dumps(ring, 5), max, NO_LIMIT) == 2
    pair: Any = ([],)
    pair[0].append(pair)
    assert largest_tuple(pickle.dumps(pair, 5), max, NO_LIMIT) == 2


def test_every_kind_of_item() -> None:
    value = [
        (1, 300, 70_000, -1, 1 << 40, 1 << 3000, 0.5, "x", "x" * 300, b"x", b"x" * 300, bytearray(3)),
        ({1, 2}, frozenset({3}), {}, {1: 2}, {3: 4, 5: 6}, [], [1], (), None, True, False, 1j, ValueError(1)),
    ]
    assert largest_tuple(pickle.dumps(value, 5), max, NO_LIMIT) == 4  # (ValueError(...),): name, call
    assert largest_tuple(pickle.dumps(value[0], 5), sum, NO_LIMIT) == 13
    assert largest_tuple(pickle.dumps((value[0], 1), 5), max, NO_LIMIT) == 3


@pytest.mark.parametrize("body", [b"\x85", b"N\x86", b"t", b"R", b"\x94", b"h\x00", b"u", b"0", b"\x91"])
def test_underflow(body: bytes) -> None:
    with pytest.raises(IndexError):
        largest_tuple(b"\x80\x05" + body + b".", max, NO_LIMIT)
