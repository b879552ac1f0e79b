"""An id that is put again is known by what the item says: in another process, and in another order, as well."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import os
import sys
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from gevent import subprocess
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.client.queue.content_digest import content_digest


class Plain:
    def __init__(self, *values: Any) -> None:
        self.values = values


@dataclass(frozen=True)
class Flavor:
    name: str
    ram: int


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


def digest(value: Any) -> bytes:
    return content_digest(b"charge", {"value": value})


_DAY = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)

_DIFFERENT: list[Any] = [
    None, False, True, 0, 1, 1.0, "1", b"1", "", b"", [], {}, set(), [1], [[1]], [1, 2], [2, 1], {1, 2}, {1: 2}, {2: 1},
    {"1": 2}, {1: {"a": 2}}, "a\udc80", 1j, Plain(), Plain(1), Plain([1]), Flavor("a", 1), Flavor("a", 2), Size.SMALL,
    Size.LARGE, Plain, Flavor, _DAY, _DAY + datetime.timedelta(1), decimal.Decimal(1), decimal.Decimal("1.0"),
    uuid.UUID(int=1), uuid.UUID(int=2), functools.partial(max, 1), functools.partial(max, 2), len, max, digest,
]  # fmt: skip


def test_values_that_differ_have_different_digests() -> None:
    digests = [digest(value) for value in _DIFFERENT]
    assert len(set(digests)) == len(digests)
    assert {len(each) for each in digests} == {16}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1: "a", "b": 2}, {"b": 2, 1: "a"}),
        ({(1, 2): 3}, {(1, 2): 3}),
        ((1, 2), [1, 2]),
        (Plain({"x", "y"}), Plain({"y", "x"})),
        (object(), object()),
        (Flavor("a", 1), Flavor("a", 1)),
        (bytearray(b"a"), b"a"),
    ],
    ids=["keys of two kinds", "tuples as keys", "a tuple", "sets", "no state", "a class", "bytes"],
)
def test_the_same_content_has_the_same_digest(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


def test_methods_and_names_of_arguments_count() -> None:
    assert len({content_digest(b"a", {"b": 1}), content_digest(b"b", {"a": 1}), content_digest(b"a", {"a": 1})}) == 3


def test_what_contains_itself_has_a_digest() -> None:
    ring: list[Any] = []
    ring.append(ring)
    knot = Plain()
    knot.values = (knot, ring)
    assert digest(ring) == digest(ring)
    assert digest(knot) != digest(ring)


def test_what_is_shared_is_looked_at_once() -> None:
    shared: list[Any] = []
    for _ in range(200):
        shared = [shared, shared]
    assert digest(shared) == digest([shared[0], shared[0]])


def test_what_is_too_deep_has_a_digest() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(digest(deep)) == 16


def test_what_no_pickle_takes_has_a_digest() -> None:
    assert digest(sys.stdout) == digest(sys.stdout)
    assert digest(lambda: None) != digest(len)


_PROGRAM = """
import datetime
from rpcmq.client.queue.content_digest import content_digest
print(content_digest(b"m", {"set": {"a", "b", "c", "d"}, "of": frozenset({(1, "x"), (2, "y")}),
                            "at": datetime.date(2026, 1, 1), "object": object()}).hex())
"""


def test_each_process_makes_the_same_digest() -> None:
    digests = {
        subprocess.check_output(
            [sys.executable, "-c", _PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed}, timeout=60
        )
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(each) for key, each in reversed(value.items())}
    return [_turned(each) for each in value] if isinstance(value, list) else value


@given(_VALUES)
def test_the_order_in_which_a_mapping_was_built_does_not_count(value: Any) -> None:
    assert digest(value) == digest(_turned(value))


@given(_VALUES, _VALUES)
def test_only_the_same_has_the_same_digest(one: Any, other: Any) -> None:
    assert (digest(one) == digest(other)) == (repr(_sorted(one)) == repr(_sorted(other)))


def _sorted(value: Any) -> Any:
    """The content, mappings in an order of their own."""
    if isinstance(value, dict):
        return ("mapping", sorted((repr(key), repr(_sorted(each))) for key, each in value.items()))
    return [_sorted(each) for each in value] if isinstance(value, list) else value
